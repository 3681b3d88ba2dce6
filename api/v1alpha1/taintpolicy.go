package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintOperation is a change of a taint.
//
// +kubebuilder:validation:Enum=Add;Change;Remove
type TaintOperation string

// The operations on taints.
const (
	// TaintAdd adds a taint with a new key and effect.
	TaintAdd TaintOperation = "Add"
	// TaintChange changes the value or the time of a taint.
	TaintChange TaintOperation = "Change"
	// TaintRemove removes a taint.
	TaintRemove TaintOperation = "Remove"
)

// TaintPolicy controls which users may set which taints of nodes and devices, which
// taints nodes get by their labels, and how many pods a taint may affect.
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

	// spec is the desired behaviour of the policy.
	//
	// +required
	Spec TaintPolicySpec `json:"spec"`

	// status is the observed state of the policy. Tollgate writes it.
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

// TaintPolicySpec selects taints and restricts how they are set.
type TaintPolicySpec struct {
	// taints lists selectors of the governed taints.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// setters lists the users that may set the governed taints. One matching setter is
	// enough. If empty, no user may set them. The controllers of Kubernetes may always
	// set the system keys, and a DRA driver may always set the taints of its own slices.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Setters []TaintSetter `json:"setters,omitempty"`

	// matchConditions lists CEL expressions that must all be true for setters and limits
	// to apply to a request.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

	// register adds taints to nodes by their labels.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Register []TaintRegistration `json:"register,omitempty"`

	// limits restricts the effect of the governed taints. Limits apply to setters too. An
	// EvictionApproval allows a write that exceeds a limit.
	//
	// +optional
	Limits *TaintLimits `json:"limits,omitempty"`

	// ttl is the time after timeAdded at which Tollgate removes a governed taint from a
	// node or a ResourceSlicePatch, or deletes a DeviceTaintRule with a governed taint.
	// Tollgate deletes a patch that contains nothing else. Taints that register adds
	// stay. If absent, Tollgate removes no taints. The minimum is 1m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="at least 1m"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// validationActions lists the actions that Tollgate takes when a request violates the
	// policy: Deny refuses the request, Warn sends a warning to the client, Audit adds an
	// annotation to the audit event. Deny and Warn exclude each other, because the client
	// would get the same message twice. Defaults to Deny.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={Deny}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="!(self.exists(a, a == 'Deny') && self.exists(a, a == 'Warn'))",message="Deny and Warn exclude each other"
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// message is a text that Tollgate adds to the denials and warnings of the policy.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// TaintSetter allows a set of users to change the governed taints. All fields that are
// set must match. At least one of subjects, rbac and expression is set.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.subjects) || (has(self.rbac) && self.rbac) || has(self.expression)",message="a setter names who it is for: set subjects, rbac: true or expression"
type TaintSetter struct {
	// subjects lists the users, groups and service accounts to which the setter applies.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// rbac restricts the setter to users with the permission for the verb "taint" on
	// taints.tollgate.dev, with the taint key as the resource name. Defaults to false.
	//
	// +optional
	RBAC bool `json:"rbac,omitempty"`

	// expression is a CEL expression that must be true for the setter to apply.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression,omitempty"`

	// operations lists the allowed operations: Add, Change, Remove. If absent, all
	// operations are allowed.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Operations []TaintOperation `json:"operations,omitempty"`
}

// TaintRegistration adds taints to nodes by their labels.
//
// +structType=atomic
type TaintRegistration struct {
	// nodeSelector selects the nodes by their labels. It must have at least one
	// requirement.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select every node: name at least one label"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// taints lists the taints that the nodes get.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Taints []RegisteredTaint `json:"taints"`

	// reconcile also adds the taints to existing nodes with matching labels, and keeps
	// the taints there. If false, Tollgate adds the taints when a node is created, and
	// later only to nodes that were created while Tollgate was not running. Defaults to
	// false.
	//
	// +optional
	Reconcile bool `json:"reconcile,omitempty"`
}

// RegisteredTaint is a taint that nodes get. It has no time.
type RegisteredTaint struct {
	// key is the taint key.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// value is the taint value.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// effect is the taint effect: NoSchedule, PreferNoSchedule or NoExecute.
	//
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// TaintLimits restricts the effect of taints. At least one limit is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxAffectedPods) || has(self.maxAffectedPercent) || (has(self.requireSelector) && self.requireSelector) || (has(self.requirePreview) && self.requirePreview) || has(self.maxTimeAddedSkew)",message="limits without a limit: set at least one"
type TaintLimits struct {
	// maxAffectedPods is the maximum number of pods that have to leave because of
	// governed taints that are written within window. If absent, the number is not
	// limited.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxAffectedPods *int32 `json:"maxAffectedPods,omitempty"`

	// maxAffectedPercent is the maximum percentage of the cluster's live pods that have
	// to leave because of governed taints that are written within window. A live pod is
	// on a node, and neither finished nor terminating. If absent, the percentage is not
	// limited.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxAffectedPercent *int32 `json:"maxAffectedPercent,omitempty"`

	// requireSelector refuses DeviceTaintRules, and ResourceSlicePatches with governed
	// taints, that select every device. Defaults to false.
	//
	// +optional
	RequireSelector bool `json:"requireSelector,omitempty"`

	// requirePreview refuses the effect NoExecute in a DeviceTaintRule or
	// ResourceSlicePatch that did not have the same taint with the effect None, for the
	// same devices, before. Defaults to false.
	//
	// +optional
	RequirePreview bool `json:"requirePreview,omitempty"`

	// maxTimeAddedSkew is the maximum difference between the present and the timeAdded
	// that a client writes, before or after. If absent, the policy does not limit the
	// difference.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not negative"
	MaxTimeAddedSkew *metav1.Duration `json:"maxTimeAddedSkew,omitempty"`

	// window is the length of the time over which the affected pods of several writes
	// count together, so that many small writes cannot exceed a limit. Each replica of
	// Tollgate counts the writes that it sees. Writes that two replicas judge at the same
	// moment do not count together, and a replica does not count pods that left before it
	// started. Defaults to 10m; the minimum is 1s, the maximum 24h.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="1s to 24h"
	Window metav1.Duration `json:"window,omitzero"`
}
