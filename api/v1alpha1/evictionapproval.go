package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EvictionApproval lets one taint evict more pods than a limit allows, or the breaker of an
// EvictionPolicy let more pods go. It is an object, so that RBAC says who may approve and the audit log who did. It is used
// once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=evapp,categories=tollgate
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Rule",type=string,JSONPath=`.spec.deviceTaintRule`
// +kubebuilder:printcolumn:name="Patch",type=string,JSONPath=`.spec.resourceSlicePatch`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.evictionPolicy`
// +kubebuilder:printcolumn:name="Taint",type=string,JSONPath=`.spec.taint.key`
// +kubebuilder:printcolumn:name="Max-Pods",type=integer,JSONPath=`.spec.maxPods`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EvictionApproval struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is approved. It cannot be changed.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what was approved cannot be changed: delete it and approve anew"
	Spec EvictionApprovalSpec `json:"spec"`

	// status is what became of the approval.
	//
	// +optional
	Status EvictionApprovalStatus `json:"status,omitzero"`
}

// EvictionApprovalList is a list of EvictionApprovals.
//
// +kubebuilder:object:root=true
type EvictionApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []EvictionApproval `json:"items"`
}

// EvictionApprovalSpec says for which taint of which object, or for which EvictionPolicy,
// how many pods may go.
//
// +kubebuilder:validation:XValidation:rule="[has(self.node), has(self.deviceTaintRule), has(self.resourceSlicePatch), has(self.evictionPolicy)].exists_one(named, named)",message="name exactly one of node, deviceTaintRule, resourceSlicePatch and evictionPolicy"
// +kubebuilder:validation:XValidation:rule="has(self.taint) != has(self.evictionPolicy)",message="give taint with node, deviceTaintRule or resourceSlicePatch, and leave it out with evictionPolicy"
type EvictionApprovalSpec struct {
	// node is the name of the node that carries the taint.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// deviceTaintRule is the name of the DeviceTaintRule that sets the taint.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DeviceTaintRule string `json:"deviceTaintRule,omitempty"`

	// resourceSlicePatch is the name of the ResourceSlicePatch that sets the taint, on
	// however many devices.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ResourceSlicePatch string `json:"resourceSlicePatch,omitempty"`

	// evictionPolicy is the name of the EvictionPolicy whose breaker lets the pods go,
	// because of whichever taints. The breakers of other policies still bind them, and so
	// do the limits of TaintPolicies.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	EvictionPolicy string `json:"evictionPolicy,omitempty"`

	// taint is the taint of the node, DeviceTaintRule or ResourceSlicePatch.
	//
	// +optional
	Taint ApprovedTaint `json:"taint,omitzero"`

	// maxPods is how many pods may go, at most.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	MaxPods int32 `json:"maxPods"`

	// expiresAfter is how long after its creation the approval can be used.
	//
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('168h')",message="more than 0s, at most 168h"
	ExpiresAfter metav1.Duration `json:"expiresAfter,omitzero"`
}

// ApprovedTaint names a taint by key and effect.
//
// +structType=atomic
type ApprovedTaint struct {
	// key is the key of the taint.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// effect is the effect of the taint. Only NoExecute evicts.
	//
	// +required
	// +kubebuilder:validation:Enum=NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// EvictionApprovalStatus says what became of an approval.
type EvictionApprovalStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// usedAt is when the approved taint was seen, or when a breaker first let pods go
	// because of the approval. An approval that was used cannot be used again for a
	// taint that comes later.
	//
	// +optional
	UsedAt *metav1.Time `json:"usedAt,omitempty"`

	// evicted is how many pods have gone because of it. With evictionPolicy it is as many
	// as released.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`

	// released is how many pods breakers have let go because of it. It is written
	// before they go.
	//
	// +optional
	Released int32 `json:"released,omitempty"`

	// releaseID is of the last write of released. It tells after a lost answer whether
	// the write went through, or another one did.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ReleaseID string `json:"releaseID,omitempty"`

	// conditions of the approval. Ready is True as long as it can be used; its
	// reason is Open, Used or Expired.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
