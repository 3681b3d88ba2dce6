package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlacementPolicy says what pods and ResourceClaims are given when they are
// created: tolerations, and where they are steered.
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

	// spec is what the policy gives, and to whom.
	//
	// +required
	Spec PlacementPolicySpec `json:"spec"`

	// status is what Tollgate says about the policy.
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

// PlacementPolicySpec says who is given what.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod) || has(self.claim) || has(self.guard)",message="a policy gives something: set pod, claim or guard"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || (has(self.match.namespaces) && size(self.match.namespaces) > 0) || (has(self.match.namespaceSelector) && ((has(self.match.namespaceSelector.matchLabels) && size(self.match.namespaceSelector.matchLabels) > 0) || (has(self.match.namespaceSelector.matchExpressions) && size(self.match.namespaceSelector.matchExpressions) > 0)))",message="guard grants its taints to namespaces: set match.namespaces or match.namespaceSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || !((has(self.match.resources) && size(self.match.resources) > 0) || (has(self.match.deviceClasses) && size(self.match.deviceClasses) > 0) || (has(self.match.matchConditions) && size(self.match.matchConditions) > 0))",message="guard grants its taints to namespaces and pod labels: it cannot be combined with match.resources, match.deviceClasses or match.matchConditions"
// +kubebuilder:validation:XValidation:rule="!has(self.guard) || !has(self.guard.register) || has(self.guard.register.nodeSelector) || (has(self.pod) && has(self.pod.nodeSelector) && size(self.pod.nodeSelector) > 0)",message="register needs to know the nodes: set pod.nodeSelector or guard.register.nodeSelector"
type PlacementPolicySpec struct {
	// match says which pods and claims the policy is for.
	//
	// +required
	Match PlacementMatch `json:"match"`

	// pod is what pods are given.
	//
	// +optional
	Pod *PodPlacement `json:"pod,omitempty"`

	// claim is what ResourceClaims and ResourceClaimTemplates are given.
	//
	// +optional
	Claim *ClaimPlacement `json:"claim,omitempty"`

	// guard dedicates nodes to the pods that the policy matches: it names the taints of
	// the nodes, gives the pods tolerations of them, and refuses these tolerations to
	// other pods.
	//
	// +optional
	Guard *PlacementGuard `json:"guard,omitempty"`
}

// PlacementMatch selects pods and claims. All fields that are set must match. At
// least one of namespaces, namespaceSelector, resources, deviceClasses and
// matchConditions is set: podSelector only narrows, because users set the labels of
// their pods.
//
// +kubebuilder:validation:XValidation:rule="(has(self.namespaces) && size(self.namespaces) > 0) || (has(self.namespaceSelector) && ((has(self.namespaceSelector.matchLabels) && size(self.namespaceSelector.matchLabels) > 0) || (has(self.namespaceSelector.matchExpressions) && size(self.namespaceSelector.matchExpressions) > 0))) || (has(self.resources) && size(self.resources) > 0) || (has(self.deviceClasses) && size(self.deviceClasses) > 0) || (has(self.matchConditions) && size(self.matchConditions) > 0)",message="a policy names who it is for: set namespaces, namespaceSelector, resources, deviceClasses or matchConditions (podSelector only narrows)"
type PlacementMatch struct {
	// namespaces are namespace names; a trailing "*" matches every name with that
	// prefix, and "*" alone every namespace.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// namespaceSelector selects namespaces by their labels. An empty one selects
	// every namespace, and is not enough by itself.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// podSelector narrows the policy to pods, and claims, with these labels.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// resources are names of resources: pods with a container that requests one of
	// them. Claims request none, and are not selected.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	Resources []string `json:"resources,omitempty"`

	// deviceClasses are names of DeviceClasses: claims with a request for one of
	// them, and pods that use such a claim.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`

	// matchConditions are CEL expressions that must all be true. Where one fails and
	// none is false, pods get the scheduling gates of the policy and nothing else.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// PodPlacement is what pods are given. Nothing is added that an existing entry
// covers.
type PodPlacement struct {
	// tolerations are added.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// nodeSelector steers pods to nodes with these labels. Policies that steer by the
	// same label are merged: a node with the value of any of them will do.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// nodeAffinity are required expressions, added to every required term.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeAffinity []corev1.NodeSelectorRequirement `json:"nodeAffinity,omitempty"`

	// topologySpread fills in fields of topologySpreadConstraints that are absent.
	//
	// +optional
	TopologySpread *TopologySpreadDefaults `json:"topologySpread,omitempty"`

	// schedulingGates are added.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	SchedulingGates []string `json:"schedulingGates,omitempty"`
}

// TopologySpreadDefaults are the inclusion policies of topology spread (KEP-3094),
// set in constraints that do not say.
type TopologySpreadDefaults struct {
	// nodeTaintsPolicy says whether nodes with taints that the pod does not tolerate
	// count: Honor leaves them out, Ignore counts them.
	//
	// +optional
	// +kubebuilder:validation:Enum=Honor;Ignore
	NodeTaintsPolicy *corev1.NodeInclusionPolicy `json:"nodeTaintsPolicy,omitempty"`

	// nodeAffinityPolicy says whether nodes that the pod's nodeSelector and
	// nodeAffinity rule out count.
	//
	// +optional
	// +kubebuilder:validation:Enum=Honor;Ignore
	NodeAffinityPolicy *corev1.NodeInclusionPolicy `json:"nodeAffinityPolicy,omitempty"`
}

// ClaimPlacement is what claims are given.
type ClaimPlacement struct {
	// tolerations are added to every request. A toleration of NoExecute for a while
	// needs a NoSchedule taint of the same key beside it: without, a pod would come
	// back to the device, and go again, for ever.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Tolerations []resourcev1.DeviceToleration `json:"tolerations"`
}

// PlacementGuard dedicates nodes to the pods that a PlacementPolicy matches. It stands
// for a TolerationPolicy, and for a TaintPolicy where register or setters are set; the
// status of the PlacementPolicy shows both. Messages name the PlacementPolicy.
type PlacementGuard struct {
	// taints are the taints of the dedicated nodes. Matching pods are given a toleration
	// of each. Other pods may tolerate these keys and values, with any effect, only if a
	// grant allows it.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Taints []RegisteredTaint `json:"taints"`

	// grants allow the tolerations to more than the pods that the policy matches, as in
	// a TolerationPolicy. rbac: true is for DaemonSets of the platform.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=63
	Grants []TolerationGrant `json:"grants,omitempty"`

	// register gives the taints to nodes.
	//
	// +optional
	Register *GuardRegistration `json:"register,omitempty"`

	// setters say who may set the taints, as in a TaintPolicy. Without setters the
	// policy does not restrict who may.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Setters []TaintSetter `json:"setters,omitempty"`

	// validationActions say what happens when a toleration is not granted or a taint is
	// set by others than the setters: Deny (the default), Warn, Audit. Deny and Warn
	// together are not allowed, because the client would be told twice.
	//
	// +optional
	// +listType=set
	// +kubebuilder:default={Deny}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="!(self.exists(a, a == 'Deny') && self.exists(a, a == 'Warn'))",message="Deny and Warn exclude each other"
	ValidationActions []ValidationAction `json:"validationActions,omitempty"`

	// message is shown when the guard refuses or warns.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// GuardRegistration gives the taints of a guard to nodes by their labels.
type GuardRegistration struct {
	// nodeSelector selects the nodes. The default is the nodeSelector that pods are
	// given.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="an empty selector would select every node: name at least one label"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// reconcile keeps the taints on nodes that exist already, and puts them on nodes
	// that come to match. Without it they are set when a node is created, and
	// restored on nodes that were created while Tollgate was away.
	//
	// +optional
	Reconcile bool `json:"reconcile,omitempty"`
}

// PlacementPolicyStatus says whether the policy is in force.
type PlacementPolicyStatus struct {
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

	// guard shows the policies that spec.guard stands for.
	//
	// +optional
	Guard *PlacementGuardStatus `json:"guard,omitempty"`

	// violations are the pods with tolerations that the guard does not grant, as in the
	// status of a TolerationPolicy. Without a guard there are none.
	//
	// +optional
	Violations *TolerationViolations `json:"violations,omitempty"`
}

// PlacementGuardStatus shows the policies in force that a guard stands for. They are not
// objects of the API. A policy whose feature gate is off is absent.
type PlacementGuardStatus struct {
	// tolerationPolicy says who may tolerate the taints.
	//
	// +optional
	TolerationPolicy *TolerationPolicySpec `json:"tolerationPolicy,omitempty"`

	// taintPolicy says who may set the taints, and which nodes get them. It is absent
	// without register and setters.
	//
	// +optional
	TaintPolicy *TaintPolicySpec `json:"taintPolicy,omitempty"`
}
