package informer

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// RuleOf returns the kept part of a DeviceTaintRule in any version of its API.
func RuleOf(object *unstructured.Unstructured) (tracker.Rule, error) {
	_, rule, err := ReadRule(object)
	return rule, err
}

// ReadRule returns a DeviceTaintRule of any version of its API, and its kept part. The
// versions differ in nothing but the name of the version (VS-02), and in the selector: up to
// Kubernetes 1.34 that of v1alpha3 has deviceClassName and selectors as well
// (VS-03). A rule with a field in its selector that is not known here selects
// nothing: the fields that are left could select every device.
func ReadRule(object *unstructured.Unstructured) (*resourcev1.DeviceTaintRule, tracker.Rule, error) {
	typed := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, tracker.Rule{}, fmt.Errorf("read DeviceTaintRule %s: %w", object.GetName(), err)
	}
	rule := tracker.RuleOf(typed)
	// The fields in the selector that are not known here, sorted.
	spec, _ := object.Object["spec"].(map[string]any)
	selector, _ := spec["deviceSelector"].(map[string]any)
	for name, value := range selector {
		if value != nil && !slices.Contains([]string{"driver", "pool", "device"}, name) {
			rule.Unsupported = append(rule.Unsupported, name)
		}
	}
	if slices.Sort(rule.Unsupported); len(rule.Unsupported) > 0 {
		rule.Selector, rule.Selects = device.Selector{}, false
	}
	return typed, rule, nil
}
