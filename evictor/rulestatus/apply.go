package rulestatus

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// fieldManager owns the conditions that this package writes.
const fieldManager = "tollgate"

// applier writes conditions into the status of the rule with a name and a UID. They
// replace the conditions that it wrote before. It returns the written rule.
type applier interface {
	Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error)
}

// Applier writes conditions by server-side apply (DE-60).
type Applier struct {
	client dynamic.Interface
	// served returns the resource to write to; false means that the API server serves no
	// status of it.
	served  func() (schema.GroupVersionResource, bool)
	apiKind string
	kind    string
	decode  func(*unstructured.Unstructured) (tracker.Rule, error)
}

// NewApplier returns an applier for DeviceTaintRules. At each write it calls served for the
// version in which rules are served with a status; false means that there is none. The
// status is the same in all versions that have one.
func NewApplier(client dynamic.Interface, served func() (schema.GroupVersionResource, bool)) *Applier {
	return &Applier{client, served, "DeviceTaintRule", KindRule, informer.RuleOf}
}

// NewPatchApplier returns an applier for ResourceSlicePatches. Other fields of the status,
// and other conditions, have other managers.
func NewPatchApplier(client dynamic.Interface) *Applier {
	served := func() (schema.GroupVersionResource, bool) {
		return v1alpha1.GroupVersion.WithResource("resourceslicepatches"), true
	}
	return &Applier{client, served, "ResourceSlicePatch", KindPatch, func(answer *unstructured.Unstructured) (tracker.Rule, error) {
		var patch v1alpha1.ResourceSlicePatch
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &patch); err != nil {
			return tracker.Rule{}, fmt.Errorf("read ResourceSlicePatch %s: %w", answer.GetName(), err)
		}
		rule, _ := ruleOfPatch(&patch)
		return rule, nil
	}}
}

// Apply implements applier. It takes over conditions of the same types from other field
// managers, and removes its earlier conditions that it does not write again. The request
// has the UID, and fails for a rule that was recreated under the same name.
func (a *Applier) Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	resource, ok := a.served()
	if !ok {
		return tracker.Rule{}, errNotServed
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&resourcev1.DeviceTaintRuleStatus{Conditions: conditions})
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("encode status of %s %s: %w", a.kind, name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": a.apiKind,
		"metadata": map[string]any{"name": name, "uid": string(uid)}, "status": status,
	}}
	answer, err := a.client.Resource(resource).ApplyStatus(ctx, name, object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("apply status of %s %s: %w", a.kind, name, err)
	}
	return a.decode(answer)
}
