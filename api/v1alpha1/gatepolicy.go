package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatePolicy says who may open scheduling gates, and who may tighten the
// scheduling directives of pods that wait behind them (KEP-3838). Every policy
// that names a gate must name the requester.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gatepol,categories=tollgate
// +kubebuilder:printcolumn:name="Gates",type=string,JSONPath=`.spec.gates`
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatePolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the policy asks for.
	//
	// +required
	Spec GatePolicySpec `json:"spec"`

	// status is what Tollgate says about the policy.
	//
	// +optional
	Status PolicyStatus `json:"status,omitzero"`
}

// GatePolicyList is a list of GatePolicies.
//
// +kubebuilder:object:root=true
type GatePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []GatePolicy `json:"items"`
}

// GatePolicySpec says which gates are guarded and who owns them.
type GatePolicySpec struct {
	// gates are names of scheduling gates, or "prefix/*" for every gate below a
	// prefix.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Gates []string `json:"gates"`

	// owners are who may remove the gates, and tighten nodeSelector and
	// nodeAffinity of pods that they hold. None means nobody.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Owners []rbacv1.Subject `json:"owners,omitempty"`

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
