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
	Status PolicyStatus `json:"status,omitzero"`
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
// +kubebuilder:validation:XValidation:rule="has(self.pod) || has(self.claim)",message="a policy gives something: set pod or claim"
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
