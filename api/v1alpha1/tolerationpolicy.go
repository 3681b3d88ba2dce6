package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ValidationAction says what happens when a policy is violated. The values and
// their meaning are those of ValidatingAdmissionPolicyBinding.
//
// +kubebuilder:validation:Enum=Deny;Warn;Audit
type ValidationAction string

// The validation actions.
const (
	// Deny refuses the request.
	Deny ValidationAction = "Deny"
	// Warn lets the request pass and sends a warning to the client.
	Warn ValidationAction = "Warn"
	// Audit lets the request pass and adds an annotation to its audit event.
	Audit ValidationAction = "Audit"
)

// ConditionReady is the condition type of objects of this API group that are in force.
const ConditionReady = "Ready"

// TolerationPolicy says who may tolerate the taints that it guards. Every
// policy that guards a toleration must grant it; a policy without grants grants
// it to nobody.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tolpol,categories=tollgate
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violations.count`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TolerationPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the policy asks for.
	//
	// +required
	Spec TolerationPolicySpec `json:"spec"`

	// status is what Tollgate says about the policy.
	//
	// +optional
	Status TolerationPolicyStatus `json:"status,omitzero"`
}

// TolerationPolicyList is a list of TolerationPolicies.
//
// +kubebuilder:object:root=true
type TolerationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TolerationPolicy `json:"items"`
}

// TolerationPolicySpec says which taints are guarded and who may tolerate them.
type TolerationPolicySpec struct {
	// taints are the guarded taints. A toleration comes under the policy when
	// some taint exists that one of these selects and that it tolerates, so a
	// wildcard toleration comes under every policy.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// grants say who may tolerate the guarded taints. One that matches is
	// enough; none means nobody.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Grants []TolerationGrant `json:"grants,omitempty"`

	// matchConditions are CEL expressions that must all be true for the policy
	// to look at a request.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

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

	// messageExpression is a CEL expression for the message; it wins over
	// message.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	MessageExpression string `json:"messageExpression,omitempty"`
}

// TolerationGrant allows the guarded tolerations to those it names. All fields
// that are set must match. At least one of namespaces, namespaceSelector,
// subjects, rbac and expression is set: objectSelector and maxTolerationSeconds
// only narrow.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.namespaces) || has(self.namespaceSelector) || has(self.subjects) || (has(self.rbac) && self.rbac) || has(self.expression)",message="a grant names who it is for: set namespaces, namespaceSelector, subjects, rbac: true or expression (objectSelector and maxTolerationSeconds only narrow)"
type TolerationGrant struct {
	// namespaces are namespace names; a trailing "*" matches every name with
	// that prefix, and "*" alone every namespace.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelector selects namespaces by their labels. It must not be
	// empty; to allow every namespace, write namespaces: ["*"].
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select everything: name at least one label, or use namespaces: [\"*\"]"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// objectSelector narrows the grant to objects with these labels. Users set
	// labels of their own pods, so it never stands alone.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select everything: name at least one label"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// subjects are the users, groups and service accounts that the grant is for.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// rbac grants those who may do verb "tolerate" on taints.tollgate.dev named
	// by the key: the requesting user or the pod's service account.
	//
	// +optional
	RBAC bool `json:"rbac,omitempty"`

	// expression is a CEL expression that must be true.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression,omitempty"`

	// maxTolerationSeconds bounds tolerations of NoExecute taints: they must say
	// tolerationSeconds, and no more than this.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxTolerationSeconds *int64 `json:"maxTolerationSeconds,omitempty"`
}

// TolerationPolicyStatus says whether the policy is in force.
type TolerationPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions of the policy. Ready is True when every part of the policy is
	// evaluated.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// violations are the pods that stood before the policy, or came in around it,
	// and that it would refuse today. Those in kube-system and in the namespace of
	// Tollgate, which admission never judges, are not counted.
	//
	// +optional
	Violations *TolerationViolations `json:"violations,omitempty"`
}

// TolerationViolations are pods that a policy would refuse today. What depends on
// who created a pod is not known any more, and not held against it. Pods in kube-system and
// in the namespace of Tollgate, which admission never judges, are not counted.
type TolerationViolations struct {
	// count is how many there are.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// sample names the first few, by namespace and name.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Sample []TolerationViolation `json:"sample,omitempty"`
}

// TolerationViolation is a pod that a policy would refuse today.
type TolerationViolation struct {
	// namespace of the pod.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name of the pod.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// toleration is the first of its tolerations that the policy does not grant, in
	// words.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Toleration string `json:"toleration"`
}
