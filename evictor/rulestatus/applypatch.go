package rulestatus

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// PatchApplier writes conditions of ResourceSlicePatches by server-side apply. Other
// fields of the status, and other conditions, have other managers: this one takes back
// what it does not write again.
type PatchApplier struct{ client dynamic.Interface }

// NewPatchApplier returns an applier.
func NewPatchApplier(client dynamic.Interface) *PatchApplier { return &PatchApplier{client: client} }

// appliedPatch is what is applied of a patch.
type appliedPatch struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata"`

	Status appliedStatus `json:"status"`
}

type appliedStatus struct {
	Conditions []*metav1ac.ConditionApplyConfiguration `json:"conditions,omitempty"`
}

// Apply implements applier. Like that of an Applier, it is about the patch with the UID and
// no other.
func (a *PatchApplier) Apply(ctx context.Context, name string, uid types.UID, conditions []metav1.Condition) (tracker.Rule, error) {
	wanted := appliedPatch{
		TypeMetaApplyConfiguration:   *metav1ac.TypeMeta().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("ResourceSlicePatch"),
		ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithUID(uid),
	}
	for i := range conditions {
		wanted.Status.Conditions = append(wanted.Status.Conditions, applied(&conditions[i]))
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&wanted)
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("encode status of patch %s: %w", name, err)
	}
	answer, err := a.client.Resource(v1alpha1.GroupVersion.WithResource("resourceslicepatches")).ApplyStatus(ctx, name,
		&unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return tracker.Rule{}, fmt.Errorf("apply status of patch %s: %w", name, err)
	}
	var patch v1alpha1.ResourceSlicePatch
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &patch); err != nil {
		return tracker.Rule{}, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	rule, _ := ruleOfPatch(&patch)
	return rule, nil
}
