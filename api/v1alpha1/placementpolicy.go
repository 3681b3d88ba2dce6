package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlacementPolicy describes the fields that Tollgate adds to pods and ResourceClaims when
// they are created: tolerations, and constraints on the nodes of pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=placepol,categories=tollgate
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.match.namespaces`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violations.count`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired behaviour of the policy.
	//
	// +required
	Spec PlacementPolicySpec `json:"spec"`

	// status is the observed state of the policy. Tollgate writes it.
	//
	// +optional
	Status PlacementPolicyStatus `json:"status,omitzero"`
}

// PlacementPolicyList is a list of PlacementPolicies.
//
// +kubebuilder:object:root=true
type PlacementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PlacementPolicy `json:"items"`
}

// PlacementPolicySpec selects pods and claims, and describes the fields that they get.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod) || has(self.claim) || has(self.guard)",message="a policy gives something: set pod, claim or guard"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || (has(self.match.namespaces) && size(self.match.namespaces) > 0) || (has(self.match.namespaceSelector) && ((has(self.match.namespaceSelector.matchLabels) && size(self.match.namespaceSelector.matchLabels) > 0) || (has(self.match.namespaceSelector.matchExpressions) && size(self.match.namespaceSelector.matchExpressions) > 0)))",message="guard grants its taints to namespaces: set match.namespaces or match.namespaceSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || !((has(self.match.resources) && size(self.match.resources) > 0) || (has(self.match.deviceClasses) && size(self.match.deviceClasses) > 0) || (has(self.match.matchConditions) && size(self.match.matchConditions) > 0))",message="guard grants its taints to namespaces and pod labels: it cannot be combined with match.resources, match.deviceClasses or match.matchConditions"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || !has(self.guard.register) || has(self.guard.register.nodeSelector) || (has(self.pod) && has(self.pod.nodeSelector) && size(self.pod.nodeSelector) > 0)",message="register needs to know the nodes: set pod.nodeSelector or guard.register.nodeSelector"
type PlacementPolicySpec struct {
	// match selects the pods and claims to which the policy applies.
	//
	// +required
	Match PlacementMatch `json:"match"`

	// pod describes the fields that Tollgate adds to pods.
	//
	// +optional
	Pod *PodPlacement `json:"pod,omitempty"`

	// claim describes the fields that Tollgate adds to ResourceClaims and
	// ResourceClaimTemplates.
	//
	// +optional
	Claim *ClaimPlacement `json:"claim,omitempty"`

	// guard dedicates nodes to the pods that the policy matches: it names the taints of
	// the nodes, adds tolerations of these taints to the pods, and refuses these
	// tolerations in other pods.
	//
	// +optional
	Guard *PlacementGuard `json:"guard,omitempty"`
}

// PlacementMatch selects pods and claims. All fields that are set must match. At least
// one of namespaces, namespaceSelector, resources, deviceClasses and matchConditions is
// set. podSelector alone is not enough, because users choose the labels of their pods.
//
// +kubebuilder:validation:XValidation:rule="(has(self.namespaces) && size(self.namespaces) > 0) || (has(self.namespaceSelector) && ((has(self.namespaceSelector.matchLabels) && size(self.namespaceSelector.matchLabels) > 0) || (has(self.namespaceSelector.matchExpressions) && size(self.namespaceSelector.matchExpressions) > 0))) || (has(self.resources) && size(self.resources) > 0) || (has(self.deviceClasses) && size(self.deviceClasses) > 0) || (has(self.matchConditions) && size(self.matchConditions) > 0)",message="a policy names who it is for: set namespaces, namespaceSelector, resources, deviceClasses or matchConditions (podSelector only narrows)"
type PlacementMatch struct {
	// namespaces lists names of namespaces. A trailing "*" matches every name with that
	// prefix, and "*" alone matches every namespace.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelector selects namespaces by their labels. An empty selector selects
	// every namespace; the policy then needs another field of match.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// podSelector restricts the policy to pods and claims with matching labels.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// resources lists names of resources. It selects pods with a container that requests
	// at least one of them. It selects no claims, because claims request no resources.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Resources []string `json:"resources,omitempty"`

	// deviceClasses lists names of DeviceClasses. It selects claims with a request for at
	// least one of them, and pods that use such a claim.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`

	// matchConditions lists CEL expressions that must all be true. If an expression fails
	// with an error and none is false, pods get only the scheduling gates of the policy.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// PodPlacement describes the fields that Tollgate adds to pods. Tollgate adds nothing
// that an existing entry of the pod covers.
type PodPlacement struct {
	// tolerations lists the tolerations that pods get.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// nodeSelector requires nodes with these labels. If several policies require the same
	// label, a node with the value of any of them is allowed.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// nodeAffinity lists requirements on nodes. Tollgate adds them to every term of the
	// required node affinity of pods.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeAffinity []corev1.NodeSelectorRequirement `json:"nodeAffinity,omitempty"`

	// topologySpread sets absent fields in the topologySpreadConstraints of pods.
	//
	// +optional
	TopologySpread *TopologySpreadDefaults `json:"topologySpread,omitempty"`

	// schedulingGates lists the names of the scheduling gates that pods get.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	SchedulingGates []string `json:"schedulingGates,omitempty"`
}

// TopologySpreadDefaults contains the node inclusion policies (KEP-3094) of topology
// spread constraints that do not set them.
type TopologySpreadDefaults struct {
	// nodeTaintsPolicy decides about nodes with taints that the pod does not tolerate:
	// Honor excludes them from the count, Ignore includes them. If absent, the default of
	// Kubernetes applies, which is Ignore.
	//
	// +optional
	// +kubebuilder:validation:Enum=Honor;Ignore
	NodeTaintsPolicy *corev1.NodeInclusionPolicy `json:"nodeTaintsPolicy,omitempty"`

	// nodeAffinityPolicy decides about nodes that do not match the nodeSelector and
	// nodeAffinity of the pod: Honor excludes them from the count, Ignore includes them.
	// If absent, the default of Kubernetes applies, which is Honor.
	//
	// +optional
	// +kubebuilder:validation:Enum=Honor;Ignore
	NodeAffinityPolicy *corev1.NodeInclusionPolicy `json:"nodeAffinityPolicy,omitempty"`
}

// ClaimPlacement describes the fields that Tollgate adds to claims.
type ClaimPlacement struct {
	// tolerations lists the tolerations that every request of a claim gets. For a
	// toleration of NoExecute with tolerationSeconds, Tollgate keeps a NoSchedule taint
	// with the same key beside the NoExecute taint of the device. Without it, the
	// scheduler would place pods on the device again after each eviction.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Tolerations []resourcev1.DeviceToleration `json:"tolerations"`
}

// PlacementGuard dedicates nodes to the pods that a PlacementPolicy matches. It has the
// effect of a TolerationPolicy and, if register or setters is set, of a TaintPolicy. The
// status of the PlacementPolicy shows both. Messages to users name the PlacementPolicy.
type PlacementGuard struct {
	// taints lists the taints of the dedicated nodes. Matching pods get a toleration of
	// each taint. Other pods may tolerate these keys and values, with any effect, only if
	// a grant allows it.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Taints []RegisteredTaint `json:"taints"`

	// grants allow other pods to have the tolerations, as in a TolerationPolicy. For
	// example, a grant with rbac: true allows DaemonSets of the platform to run on the
	// nodes.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=63
	Grants []TolerationGrant `json:"grants,omitempty"`

	// register adds the taints to nodes. If absent, Tollgate does not add them.
	//
	// +optional
	Register *GuardRegistration `json:"register,omitempty"`

	// setters lists the users that may set the taints, as in a TaintPolicy. If absent,
	// the policy does not restrict which users may set them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Setters []TaintSetter `json:"setters,omitempty"`

	// validationActions lists the actions that Tollgate takes when no grant allows a
	// toleration, or when a user who is not among the setters sets a taint: Deny refuses
	// the request, Warn sends a warning to the client, Audit adds an annotation to the
	// audit event. Deny and Warn exclude each other, because the client would get the
	// same message twice. Defaults to Deny.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={Deny}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="!(self.exists(a, a == 'Deny') && self.exists(a, a == 'Warn'))",message="Deny and Warn exclude each other"
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// message is a text that Tollgate adds to the denials and warnings of the guard.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// GuardRegistration selects the nodes that get the taints of a guard.
type GuardRegistration struct {
	// nodeSelector selects the nodes by their labels. Defaults to spec.pod.nodeSelector
	// of the policy.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select every node: name at least one label"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// reconcile also adds the taints to existing nodes with matching labels, and keeps
	// the taints there. If false, Tollgate adds the taints when a node is created, and
	// later only to nodes that were created while Tollgate was not running. Defaults to
	// false.
	//
	// +optional
	Reconcile bool `json:"reconcile,omitempty"`
}

// PlacementPolicyStatus is the observed state of a PlacementPolicy.
type PlacementPolicyStatus struct {
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

	// guard shows the policies that have the effect of spec.guard.
	//
	// +optional
	Guard *PlacementGuardStatus `json:"guard,omitempty"`

	// violations counts the existing pods with tolerations that the guard does not allow,
	// as in the status of a TolerationPolicy. It is absent without a guard.
	//
	// +optional
	Violations *TolerationViolations `json:"violations,omitempty"`
}

// PlacementGuardStatus shows the policies that have the effect of a guard. They are not
// objects of the API. A policy whose feature gate is disabled is absent.
type PlacementGuardStatus struct {
	// tolerationPolicy controls which pods may tolerate the taints.
	//
	// +optional
	TolerationPolicy *TolerationPolicySpec `json:"tolerationPolicy,omitempty"`

	// taintPolicy controls which users may set the taints, and which nodes get them. It
	// is absent if the guard has neither register nor setters.
	//
	// +optional
	TaintPolicy *TaintPolicySpec `json:"taintPolicy,omitempty"`
}
