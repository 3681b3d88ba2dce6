package informer

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// The types below are what the stores of informers hold: what the tracker is
// given, and no more. A store asks for the metadata, which is made when asked for.
type (
	keptNode  struct{ tracker.Node }
	keptPod   struct{ tracker.Pod }
	keptSlice struct{ tracker.Slice }
	keptClaim struct{ tracker.Claim }
	keptRule  struct{ tracker.Rule }
	// keptBudget is a PodDisruptionBudget.
	keptBudget struct{ tracker.Budget }
)

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (n *keptNode) GetObjectMeta() metav1.Object {
	return identity("", n.Name, n.UID, n.ResourceVersion)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (p *keptPod) GetObjectMeta() metav1.Object {
	return identity(p.Namespace, p.Name, p.UID, p.ResourceVersion)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (s *keptSlice) GetObjectMeta() metav1.Object {
	return identity("", s.Name, s.UID, s.ResourceVersion)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (c *keptClaim) GetObjectMeta() metav1.Object {
	return identity(c.Namespace, c.Name, c.UID, c.ResourceVersion)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *keptRule) GetObjectMeta() metav1.Object {
	return identity("", r.Name, r.UID, r.ResourceVersion)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (b *keptBudget) GetObjectMeta() metav1.Object {
	return identity(b.Namespace, b.Name, b.UID, b.ResourceVersion)
}

func identity(namespace, name string, uid types.UID, version string) metav1.Object {
	return &metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, ResourceVersion: version}
}

// The functions below read what an informer hands out, whether or not it keeps
// only what is needed.

func readNode(obj any) (tracker.Node, bool) {
	switch obj := obj.(type) {
	case *keptNode:
		return obj.Node, true
	case *corev1.Node:
		return tracker.NodeOf(obj), true
	}
	return tracker.Node{}, false
}

func readPod(obj any) (tracker.Pod, bool) {
	switch obj := obj.(type) {
	case *keptPod:
		return obj.Pod, true
	case *corev1.Pod:
		return tracker.PodOf(obj), true
	}
	return tracker.Pod{}, false
}

func readSlice(obj any) (tracker.Slice, bool) {
	switch obj := obj.(type) {
	case *keptSlice:
		return obj.Slice, true
	case *resourcev1.ResourceSlice:
		return tracker.SliceOf(obj), true
	}
	return tracker.Slice{}, false
}

func readClaim(obj any) (tracker.Claim, bool) {
	switch obj := obj.(type) {
	case *keptClaim:
		return obj.Claim, true
	case *resourcev1.ResourceClaim:
		return tracker.ClaimOf(obj), true
	}
	return tracker.Claim{}, false
}

func readRule(obj any) (tracker.Rule, bool) {
	switch obj := obj.(type) {
	case *keptRule:
		return obj.Rule, true
	case *resourcev1.DeviceTaintRule:
		return tracker.RuleOf(obj), true
	}
	return tracker.Rule{}, false
}

func readBudget(obj any) (tracker.Budget, bool) {
	switch obj := obj.(type) {
	case *keptBudget:
		return obj.Budget, true
	case *policyv1.PodDisruptionBudget:
		return tracker.BudgetOf(obj), true
	}
	return tracker.Budget{}, false
}

// RuleOf returns what is kept of a DeviceTaintRule in any version of its API.
func RuleOf(object *unstructured.Unstructured) (tracker.Rule, error) {
	_, rule, err := ReadRule(object)
	return rule, err
}

// ReadRule returns a DeviceTaintRule of any version of its API, and what is kept of it. The
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
	if rule.Unsupported = unsupported(object); len(rule.Unsupported) > 0 {
		rule.Selector, rule.Selects = device.Selector{}, false
	}
	return typed, rule, nil
}

// unsupported returns the names of the fields in the selector of a rule that are not
// known here, sorted.
func unsupported(object *unstructured.Unstructured) []string {
	spec, _ := object.Object["spec"].(map[string]any)
	selector, _ := spec["deviceSelector"].(map[string]any)
	var names []string
	for name, value := range selector {
		switch name {
		case "driver", "pool", "device":
		default:
			if value != nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
