package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatePolicy controls which users may remove scheduling gates from pods, and which users
// may tighten the scheduling directives of gated pods (KEP-3838). If several policies
// guard a gate, the user must be an owner in each of them.
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

	// spec is the desired behaviour of the policy.
	//
	// +required
	Spec GatePolicySpec `json:"spec"`

	// status is the observed state of the policy. Tollgate writes it.
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

// GatePolicySpec names the guarded gates and their owners.
type GatePolicySpec struct {
	// gates lists the names of the guarded scheduling gates. "prefix/*" matches every
	// gate below the prefix.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Gates []string `json:"gates"`

	// owners lists the users, groups and service accounts that may remove the gates, and
	// tighten nodeSelector and nodeAffinity of pods that have the gates. If empty, no
	// user may do so.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Owners []rbacv1.Subject `json:"owners,omitempty"`

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
