package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintOperation is what is done to a taint.
//
// +kubebuilder:validation:Enum=Add;Change;Remove
type TaintOperation string

// The operations on taints.
const (
	// TaintAdd adds a taint with a new key and effect.
	TaintAdd TaintOperation = "Add"
	// TaintChange changes the value or time of a taint.
	TaintChange TaintOperation = "Change"
	// TaintRemove removes a taint.
	TaintRemove TaintOperation = "Remove"
)

// TaintPolicy says who may set which taints of nodes and devices, which taints
// nodes are born with, and how many pods a taint may hit.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=taintpol,categories=tollgate
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name="Max-Pods",type=integer,JSONPath=`.spec.limits.maxAffectedPods`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TaintPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the policy asks for.
	//
	// +required
	Spec TaintPolicySpec `json:"spec"`

	// status is what Tollgate says about the policy.
	//
	// +optional
	Status PolicyStatus `json:"status,omitzero"`
}

// TaintPolicyList is a list of TaintPolicies.
//
// +kubebuilder:object:root=true
type TaintPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TaintPolicy `json:"items"`
}

// TaintPolicySpec says which taints are governed, and how.
type TaintPolicySpec struct {
	// taints are the governed taints.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// setters say who may set the taints. One that matches is enough; none means
	// nobody. The system's own controllers may always set the system keys, and a
	// driver the taints of its own slices.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Setters []TaintSetter `json:"setters,omitempty"`

	// matchConditions are CEL expressions that must all be true for setters and
	// limits to look at a request.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

	// register says which taints nodes are born with.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Register []TaintRegistration `json:"register,omitempty"`

	// limits bound what setting the taints may do. They hold for setters too; an
	// EvictionApproval is the way past them.
	//
	// +optional
	Limits *TaintLimits `json:"limits,omitempty"`

	// ttl is how long after its timeAdded a governed taint of a node or of a
	// ResourceSlicePatch, or a DeviceTaintRule with a governed taint, is removed, and a
	// patch that has nothing else. What register sets stays.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="at least 1m"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// validationActions say what happens when the policy is violated: Deny (the
	// default), Warn, Audit. Deny and Warn together are not allowed, because the
	// client would be told twice.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={Deny}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="!(self.exists(a, a == 'Deny') && self.exists(a, a == 'Warn'))",message="Deny and Warn exclude each other"
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// message is shown when the policy refuses or warns.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// TaintSetter allows operations on the governed taints to those it names. All
// fields that are set must match, and at least one of subjects, rbac and expression
// is set.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.subjects) || (has(self.rbac) && self.rbac) || has(self.expression)",message="a setter names who it is for: set subjects, rbac: true or expression"
type TaintSetter struct {
	// subjects are the users, groups and service accounts that the setter is for.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// rbac allows those who may do verb "taint" on taints.tollgate.dev named by the
	// key.
	//
	// +optional
	RBAC bool `json:"rbac,omitempty"`

	// expression is a CEL expression that must be true.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression,omitempty"`

	// operations are what may be done: Add, Change, Remove. None given means all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Operations []TaintOperation `json:"operations,omitempty"`
}

// TaintRegistration gives taints to nodes by their labels.
//
// +structType=atomic
type TaintRegistration struct {
	// nodeSelector selects the nodes. It must not be empty.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select every node: name at least one label"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// taints are what the nodes get, without a time.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Taints []RegisteredTaint `json:"taints"`

	// reconcile keeps the taints on nodes that exist already, and puts them on nodes
	// that come to match. Without it they are set when a node is created, and
	// restored on nodes that were created while Tollgate was away.
	//
	// +optional
	Reconcile bool `json:"reconcile,omitempty"`
}

// RegisteredTaint is a taint that nodes get.
type RegisteredTaint struct {
	// key of the taint.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// value of the taint.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// effect of the taint.
	//
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// TaintLimits bound what setting a taint may do.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxAffectedPods) || has(self.maxAffectedPercent) || (has(self.requireSelector) && self.requireSelector) || (has(self.requirePreview) && self.requirePreview) || has(self.maxTimeAddedSkew)",message="limits without a limit: set at least one"
type TaintLimits struct {
	// maxAffectedPods is how many pods may become due by such taints within window.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxAffectedPods *int32 `json:"maxAffectedPods,omitempty"`

	// maxAffectedPercent is how many of the cluster's live pods, in percent, may
	// become due by such taints within window. Live are pods on nodes that are neither
	// finished nor terminating.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxAffectedPercent *int32 `json:"maxAffectedPercent,omitempty"`

	// requireSelector refuses DeviceTaintRules over every device.
	//
	// +optional
	RequireSelector bool `json:"requireSelector,omitempty"`

	// requirePreview refuses the effect NoExecute in a DeviceTaintRule that did not
	// stand at effect None before, with the same taint and selector.
	//
	// +optional
	RequirePreview bool `json:"requirePreview,omitempty"`

	// maxTimeAddedSkew is how far the timeAdded that a client writes may be from now,
	// before or after.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not negative"
	MaxTimeAddedSkew *metav1.Duration `json:"maxTimeAddedSkew,omitempty"`

	// window is how long writes count together, so that many small ones count as one.
	// Each replica of Tollgate counts what it sees: writes that two replicas judge in
	// the same moment do not know of each other, and pods that left before a replica
	// was started do not count there.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="1s to 24h"
	Window metav1.Duration `json:"window,omitzero"`
}
