package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EvictionApproval lets one taint evict more pods than the limits of TaintPolicies and
// the breakers of EvictionPolicies allow, or lets the breaker of one EvictionPolicy
// release more pods. RBAC controls which users may create approvals, and the audit log
// records the creator of each. An approval for a taint is used once. An approval for an
// EvictionPolicy is used until the breaker has released maxPods pods, or until the
// approval expires.
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

	// spec is the approved taint or EvictionPolicy, and the approved number of pods. It
	// is immutable.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what was approved cannot be changed: delete it and approve anew"
	Spec EvictionApprovalSpec `json:"spec"`

	// status is the observed use of the approval. Tollgate writes it.
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

// EvictionApprovalSpec names one taint of one object, or one EvictionPolicy, and the
// maximum number of pods. Exactly one of node, deviceTaintRule, resourceSlicePatch and
// evictionPolicy is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.node), has(self.deviceTaintRule), has(self.resourceSlicePatch), has(self.evictionPolicy)].exists_one(named, named)",message="name exactly one of node, deviceTaintRule, resourceSlicePatch and evictionPolicy"
// +kubebuilder:validation:XValidation:rule="has(self.taint) != has(self.evictionPolicy)",message="give taint with node, deviceTaintRule or resourceSlicePatch, and leave it out with evictionPolicy"
type EvictionApprovalSpec struct {
	// node is the name of the node that has the taint.
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

	// resourceSlicePatch is the name of the ResourceSlicePatch that sets the taint. The
	// approval covers all devices that the patch selects.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ResourceSlicePatch string `json:"resourceSlicePatch,omitempty"`

	// evictionPolicy is the name of the EvictionPolicy whose breaker releases the pods,
	// because of any taints. The breakers of other policies and the limits of
	// TaintPolicies still apply to these pods.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	EvictionPolicy string `json:"evictionPolicy,omitempty"`

	// taint is the approved taint of the node, DeviceTaintRule or ResourceSlicePatch. It
	// is required with these fields, and forbidden with evictionPolicy.
	//
	// +optional
	Taint ApprovedTaint `json:"taint,omitzero"`

	// maxPods is the maximum number of pods that may leave because of the approval.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	MaxPods int32 `json:"maxPods"`

	// expiresAfter is the time from the creation of the approval to its expiry. Defaults
	// to 1h; the maximum is 168h.
	//
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('168h')",message="more than 0s, at most 168h"
	ExpiresAfter metav1.Duration `json:"expiresAfter,omitzero"`
}

// ApprovedTaint identifies a taint by key and effect.
//
// +structType=atomic
type ApprovedTaint struct {
	// key is the taint key.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// effect is the taint effect. It is NoExecute, because no other effect evicts pods.
	//
	// +required
	// +kubebuilder:validation:Enum=NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// EvictionApprovalStatus is the observed use of an approval.
type EvictionApprovalStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// usedAt is the time at which the approved taint was written, or at which a breaker
	// first released pods because of the approval. It is absent while the approval is
	// unused. A used approval does not cover a taint that is written later.
	//
	// +optional
	UsedAt *metav1.Time `json:"usedAt,omitempty"`

	// evicted is the number of pods that have left because of the approved taint since
	// usedAt. With evictionPolicy, it equals released.
	//
	// +optional
	Evicted int32 `json:"evicted,omitempty"`

	// released is the number of pods that breakers have released because of the approval.
	// Tollgate writes the number before these pods leave.
	//
	// +optional
	Released int32 `json:"released,omitempty"`

	// releaseID is the ID of the last write of released. If the response to a write is
	// lost, the ID shows whether the API server stored that write or another one.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ReleaseID string `json:"releaseID,omitempty"`

	// conditions are the conditions of the approval. Ready is True while the approval can
	// be used; its reason is Open, Used or Expired.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
