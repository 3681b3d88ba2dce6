package slicepatches

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// fieldManager owns the status except the conditions about evictions, which have another
// owner.
const fieldManager = "tollgate-patches"

// Applier writes the status of patches by server-side apply. It is goroutine-safe.
type Applier struct{ client dynamic.Interface }

// NewApplier returns an applier.
func NewApplier(client dynamic.Interface) *Applier { return &Applier{client: client} }

// Apply applies the status of the patch with a name and a UID, and with a resourceVersion
// if version is not empty: a later write makes it fail with a conflict. Fields that it
// applied before and omits now are removed, and it takes over fields of other managers.
// The UID makes the request fail for a recreated patch.
func (a *Applier) Apply(ctx context.Context, name string, uid types.UID, version string, status *v1alpha1.ResourceSlicePatchStatus) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	metadata := map[string]any{"name": name, "uid": string(uid)}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kindPatch,
		"metadata": metadata, "status": content,
	}}
	resource := v1alpha1.GroupVersion.WithResource("resourceslicepatches")
	_, err = a.client.Resource(resource).ApplyStatus(ctx, name, wanted, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
