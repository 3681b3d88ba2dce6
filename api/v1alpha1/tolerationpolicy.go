package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ValidationAction is an action that Tollgate takes when a request violates a policy. The
// values have the same meaning as in a ValidatingAdmissionPolicyBinding.
//
// +kubebuilder:validation:Enum=Deny;Warn;Audit
type ValidationAction string

// The validation actions.
const (
	// Deny refuses the request.
	Deny ValidationAction = "Deny"
	// Warn allows the request and sends a warning to the client.
	Warn ValidationAction = "Warn"
	// Audit allows the request and adds an annotation to its audit event.
	Audit ValidationAction = "Audit"
)

// ConditionReady is the type of the condition that is True for an object that is in
// force.
const ConditionReady = "Ready"

// TolerationPolicy controls which pods and claims may tolerate the guarded taints. If
// several policies guard a toleration, each of them must grant it. A policy without
// grants allows no user to tolerate its taints.
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

	// spec is the desired behaviour of the policy.
	//
	// +required
	Spec TolerationPolicySpec `json:"spec"`

	// status is the observed state of the policy. Tollgate writes it.
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

// TolerationPolicySpec selects the guarded taints and names which users and namespaces
// may tolerate them.
type TolerationPolicySpec struct {
	// taints lists selectors of the guarded taints. A toleration falls under the policy
	// if it tolerates at least one possible taint that a selector selects. So a wildcard
	// toleration falls under every policy.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// grants lists which users and namespaces may tolerate the guarded taints. One
	// matching grant is enough. If empty, no user may tolerate them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Grants []TolerationGrant `json:"grants,omitempty"`

	// matchConditions lists CEL expressions that must all be true for the policy to apply
	// to a request.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`

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

	// messageExpression is a CEL expression that returns the message. It takes precedence
	// over message. If it fails, Tollgate uses message.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	MessageExpression string `json:"messageExpression,omitempty"`
}

// TolerationGrant allows a set of users or namespaces to tolerate the guarded taints. All
// fields that are set must match. At least one of namespaces, namespaceSelector,
// subjects, rbac and expression is set: objectSelector and maxTolerationSeconds only
// restrict a grant.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.namespaces) || has(self.namespaceSelector) || has(self.subjects) || (has(self.rbac) && self.rbac) || has(self.expression)",message="a grant names who it is for: set namespaces, namespaceSelector, subjects, rbac: true or expression (objectSelector and maxTolerationSeconds only narrow)"
type TolerationGrant struct {
	// namespaces lists names of namespaces. A trailing "*" matches every name with that
	// prefix, and "*" alone matches every namespace.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelector selects namespaces by their labels. It must have at least one
	// requirement; to allow every namespace, write namespaces: ["*"].
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select everything: name at least one label, or use namespaces: [\"*\"]"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// objectSelector restricts the grant to objects with matching labels. It needs
	// another field of the grant, because users choose the labels of their own pods.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select everything: name at least one label"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// subjects lists the users, groups and service accounts to which the grant applies.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`

	// rbac restricts the grant to users with the permission for the verb "tolerate" on
	// taints.tollgate.dev, with the taint key as the resource name. The user is the
	// requesting user or the service account of the pod. Defaults to false.
	//
	// +optional
	RBAC bool `json:"rbac,omitempty"`

	// expression is a CEL expression that must be true for the grant to apply.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression,omitempty"`

	// maxTolerationSeconds is the maximum of tolerationSeconds in tolerations of
	// NoExecute taints. A toleration without tolerationSeconds does not match the grant.
	// If absent, the time is not limited.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxTolerationSeconds *int64 `json:"maxTolerationSeconds,omitempty"`
}

// TolerationPolicyStatus is the observed state of a TolerationPolicy.
type TolerationPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the conditions of the policy. Ready is True when Tollgate evaluates
	// every part of the policy.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// violations counts the existing pods that the policy would refuse today. These pods
	// are older than the policy, or were created without the webhook. Pods in kube-system
	// and in the namespace of Tollgate do not count, because admission does not judge
	// them.
	//
	// +optional
	Violations *TolerationViolations `json:"violations,omitempty"`
}

// TolerationViolations counts the existing pods that a policy would refuse today. The
// creator of an existing pod is unknown, so conditions about the creator count as
// satisfied. Pods in kube-system and in the namespace of Tollgate do not count, because
// admission does not judge them.
type TolerationViolations struct {
	// count is the number of these pods.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// sample lists the first of these pods, by namespace and name.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Sample []TolerationViolation `json:"sample,omitempty"`
}

// TolerationViolation is a pod that a policy would refuse today.
type TolerationViolation struct {
	// namespace is the namespace of the pod.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the name of the pod.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// toleration describes the first toleration of the pod that the policy does not
	// grant.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Toleration string `json:"toleration"`
}
