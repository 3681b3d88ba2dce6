package devices

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// source is a resource of an Inventory, and how its objects are added.
type source struct {
	state.Source

	add func(*Inventory, runtime.Object) error
}

// sources returns the served resources: patches and rules first, so that each slice is merged
// once.
func sources(ctx context.Context, clients *cli.Clients, filter *Filter) ([]source, error) {
	if _, err := clients.Version(ctx, state.SliceResource, "v1"); err != nil {
		return nil, fmt.Errorf("%w (devices need Kubernetes 1.34 or later)", err)
	}
	var all []source
	for _, custom := range []struct {
		resource schema.GroupResource
		versions []string
		add      func(*Inventory, runtime.Object) error
	}{
		{state.PatchResource, []string{v1alpha1.GroupVersion.Version}, adds("ResourceSlicePatch", (*Inventory).AddPatch)},
		{informer.RuleResource, state.RuleVersions(), addRule},
	} {
		version, err := clients.Version(ctx, custom.resource, custom.versions...)
		if errors.Is(err, cli.ErrNotServed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, source{state.NewCustomSource(clients, custom.resource, version), custom.add})
	}
	client := clients.Kubernetes.ResourceV1()
	ofSlices := state.NewSource(clients, state.SliceResource, client.ResourceSlices(), &resourcev1.ResourceSlice{})
	if filter.Driver != "" {
		ofSlices.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, filter.Driver).String()
	}
	return append(all,
		source{state.NewSource(clients, state.ClassResource, client.DeviceClasses(), &resourcev1.DeviceClass{}), adds("DeviceClass", (*Inventory).AddClass)},
		source{ofSlices, adds("ResourceSlice", (*Inventory).AddSlice)},
		source{state.NewSource(clients, state.ClaimResource, client.ResourceClaims(metav1.NamespaceAll), &resourcev1.ResourceClaim{}), adds("ResourceClaim", (*Inventory).AddClaim)},
	), nil
}

// adds returns a function that adds objects of a typed client, or of a kind without one.
func adds[T any](kind string, add func(*Inventory, *T)) func(*Inventory, runtime.Object) error {
	return func(v *Inventory, object runtime.Object) error {
		switch o := any(object).(type) {
		case *T:
			add(v, o)
		case *unstructured.Unstructured:
			return cli.As(kind, func(t *T) error { add(v, t); return nil })(o)
		}
		return nil
	}
}

func addRule(v *Inventory, object runtime.Object) error {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	rule, kept, err := state.ReadRule(o)
	if err == nil {
		v.AddRule(rule, kept.Unsupported)
	}
	return err
}
