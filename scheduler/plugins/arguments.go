package plugins

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// arguments are those of the stock plugin that takes the kind: what the profile's
// pluginConfig gives to our plugin, with the defaults of Kubernetes. It refuses what
// the stock plugin's own configuration would be refused for: unknown fields, and
// another kind.
func arguments(given runtime.Object, kind string) (runtime.Object, error) {
	raw := []byte("{}")
	switch given := given.(type) {
	case nil:
	case *runtime.Unknown:
		// The scheduler knows the arguments of its own plugins only, and hands on
		// those of others as they were written.
		raw = given.Raw
	default:
		return nil, fmt.Errorf("arguments are a %T, want those of kind %s as they stand in a configuration file", given, kind)
	}
	want := configv1.SchemeGroupVersion.WithKind(kind)
	args, got, err := scheme.Codecs.UniversalDecoder().Decode(raw, &want, nil)
	if err != nil {
		return nil, fmt.Errorf("decode arguments of kind %s: %w", kind, err)
	}
	if got.GroupKind() != want.GroupKind() {
		return nil, fmt.Errorf("arguments are of kind %s, want %s or none", got.GroupKind(), want.GroupKind())
	}
	return args, nil
}
