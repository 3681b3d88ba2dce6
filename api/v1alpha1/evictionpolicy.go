package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EvictionPolicy describes how Tollgate carries out NoExecute taints: the method, the
// pace, the limit and the protected pods. If several policies select the same pod and
// taint, the policy with the highest priority decides; of policies with equal priority
// the oldest one decides, then the first by name. If no policy selects a pod and its
// taint, Tollgate deletes the pod when it is due, as Kubernetes does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=evpol,categories=tollgate
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Method",type=string,JSONPath=`.spec.method`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Because",type=string,JSONPath=`.status.conditions[?(@.type=="Held")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EvictionPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired behaviour of the policy.
	//
	// +required
	Spec EvictionPolicySpec `json:"spec"`

	// status is the observed state of the policy. Tollgate writes it.
	//
	// +optional
	Status EvictionPolicyStatus `json:"status,omitzero"`
}

// EvictionPolicyList is a list of EvictionPolicies.
//
// +kubebuilder:object:root=true
type EvictionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []EvictionPolicy `json:"items"`
}

// EvictionPolicySpec selects evictions and describes how Tollgate carries them out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.window)",message="window was renamed: write inject"
// +kubebuilder:validation:XValidation:rule="!has(self.deleteAfter) || self.method == 'Evict'",message="deleteAfter needs method Evict: Delete asks no budget"
type EvictionPolicySpec struct {
	// taints lists selectors of taints. The policy applies to evictions because of these
	// taints. Only taints with the effect NoExecute evict pods.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// namespaceSelector restricts the policy to pods in namespaces with matching labels.
	// If absent, the policy applies in all namespaces.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// podSelector restricts the policy to pods with matching labels. If absent, the
	// policy applies to all pods.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// priority decides between policies that select the same pod and taint: the policy
	// with the highest priority decides about the eviction. Defaults to 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// method is the way in which pods are evicted: Delete deletes the pod, as Kubernetes
	// does; Evict uses the Eviction API, which honours PodDisruptionBudgets. Defaults to
	// Delete.
	//
	// +optional
	// +kubebuilder:default=Delete
	Method EvictionMethod `json:"method,omitempty"`

	// deleteAfter is the time after which Tollgate deletes a pod that cannot be evicted,
	// despite its PodDisruptionBudget. The time begins when the pod is due. If absent,
	// Tollgate never deletes such a pod. deleteAfter is valid only with method Evict.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not negative"
	DeleteAfter *metav1.Duration `json:"deleteAfter,omitempty"`

	// mark is the way in which pods get the condition DisruptionTarget with method
	// Delete. Before sets the condition and then deletes the pod, as Kubernetes does.
	// ByEvictionAPI takes one request instead of two, for pods that no
	// PodDisruptionBudget selects: the Eviction API sets the condition, with the reason
	// EvictionByEvictionAPI, and deletes the pod. WhileTerminating deletes the pod and
	// then sets the condition, if the pod still terminates; pods of Jobs get the
	// condition before the deletion. Defaults to Before.
	//
	// +optional
	// +kubebuilder:default=Before
	Mark EvictionMark `json:"mark,omitempty"`

	// pace limits how many pods leave per second. If absent, the policy sets no such
	// limit.
	//
	// +optional
	Pace *EvictionPace `json:"pace,omitempty"`

	// breaker limits how many pods leave within a window of time. When the limit is
	// reached, Tollgate holds further evictions until an EvictionApproval releases them,
	// until the held evictions fit into the limit, or until the limit is raised. If
	// absent, the policy sets no such limit.
	//
	// +optional
	Breaker *EvictionBreaker `json:"breaker,omitempty"`

	// protect selects pods that are not evicted. If absent, the policy protects no pods.
	//
	// +optional
	Protect *EvictionProtection `json:"protect,omitempty"`

	// inject is the toleration that Tollgate adds to pods and claims in mode Window. It
	// delays the evictions by the controllers of Kubernetes, so that Tollgate evicts
	// before them. If inject is set, every key in taints must be complete, without "*".
	// In mode Window, Tollgate evicts only because of taints with a key for which a
	// policy has inject.
	//
	// +optional
	Inject *EvictionInjection `json:"inject,omitempty"`

	// window is the former name of inject. The API server refuses a request that sets it.
	// A stored policy that has it behaves as if inject had this value, and is not Ready.
	//
	// +optional
	Window *EvictionInjection `json:"window,omitempty"`

	// paused holds all evictions that the policy decides about. Defaults to false.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// EvictionMethod is the way in which pods are evicted.
//
// +kubebuilder:validation:Enum=Delete;Evict
type EvictionMethod string

// The eviction methods.
const (
	// EvictionMethodDelete deletes the pod, as the controllers of Kubernetes do.
	EvictionMethodDelete EvictionMethod = "Delete"
	// EvictionMethodEvict uses the Eviction API, which honours PodDisruptionBudgets.
	EvictionMethodEvict EvictionMethod = "Evict"
)

// EvictionMark is the way in which pods get the condition DisruptionTarget.
//
// +kubebuilder:validation:Enum=Before;ByEvictionAPI;WhileTerminating
type EvictionMark string

// The marks.
const (
	// EvictionMarkBefore sets the condition before the deletion of the pod, as the
	// controllers of Kubernetes do.
	EvictionMarkBefore EvictionMark = "Before"
	// EvictionMarkByEvictionAPI lets the Eviction API set the condition.
	EvictionMarkByEvictionAPI EvictionMark = "ByEvictionAPI"
	// EvictionMarkWhileTerminating sets the condition after the deletion of the pod,
	// while it terminates.
	EvictionMarkWhileTerminating EvictionMark = "WhileTerminating"
)

// LimitScope is the set of evictions to which a pace or a breaker applies.
//
// +kubebuilder:validation:Enum=Decided;Selected
type LimitScope string

// The scopes.
const (
	// LimitScopeDecided applies the limit to the evictions that the policy decides about.
	LimitScopeDecided LimitScope = "Decided"
	// LimitScopeSelected applies the limit to all evictions that the policy selects,
	// including those that a policy with a higher priority decides about. So one policy
	// that selects all taints limits the whole cluster.
	LimitScopeSelected LimitScope = "Selected"
)

// EvictionPace limits how many pods leave per second.
type EvictionPace struct {
	// podsPerSecond is the number of pods that may leave per second in the long term.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PodsPerSecond int32 `json:"podsPerSecond"`

	// burst is the number of pods that may leave at once. Defaults to podsPerSecond.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Burst int32 `json:"burst,omitempty"`

	// scope selects the evictions to which the pace applies: Decided means those that the
	// policy decides about, Selected means all that the policy selects. Defaults to
	// Decided.
	//
	// +optional
	// +kubebuilder:default=Decided
	Scope LimitScope `json:"scope,omitempty"`
}

// EvictionBreaker limits how many pods leave within a window of time. If both limits are
// set, both apply.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxPods) || has(self.maxPercent)",message="give maxPods, maxPercent or both"
type EvictionBreaker struct {
	// maxPods is the maximum number of pods that may leave within the window. If absent,
	// only maxPercent applies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPods *int32 `json:"maxPods,omitempty"`

	// maxPercent is the maximum percentage of the cluster's pods that may leave within
	// the window. It always allows one pod. The percentage refers to the live pods and
	// those that left within the window. If absent, only maxPods applies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent *int32 `json:"maxPercent,omitempty"`

	// window is the length of the time over which the breaker counts the pods that leave.
	// Defaults to 10m; the minimum is 10s, the maximum 24h.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="between 10s and 24h"
	Window metav1.Duration `json:"window,omitzero"`

	// scope selects the evictions that the breaker counts and holds: Decided means those
	// that the policy decides about, Selected means all that the policy selects. Defaults
	// to Decided.
	//
	// +optional
	// +kubebuilder:default=Decided
	Scope LimitScope `json:"scope,omitempty"`
}

// EvictionProtection selects pods that are not evicted, by their priority class or their
// labels, in all namespaces or in some.
//
// +kubebuilder:validation:XValidation:rule="has(self.priorityClassNames) || has(self.podSelector)",message="give priorityClassNames, podSelector or both"
type EvictionProtection struct {
	// priorityClassNames lists the names of priority classes. Their pods are protected.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClassNames []string `json:"priorityClassNames,omitempty"`

	// podSelector selects protected pods by their labels, in addition to
	// priorityClassNames. It must have at least one requirement: to hold all evictions,
	// set paused.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaces lists the namespaces in which priorityClassNames and podSelector apply.
	// A trailing "*" matches every name with that prefix. If absent, they apply in all
	// namespaces, and a user who may create pods can protect them with a priority class
	// or labels.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
}

// EvictionInjection is the toleration that Tollgate adds to pods and claims in mode
// Window.
type EvictionInjection struct {
	// seconds is the value of tolerationSeconds in the toleration that Tollgate adds to
	// pods and claims when they are created. During this time, the controllers of
	// Kubernetes do not evict the pods.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	Seconds int64 `json:"seconds"`
}

// ConditionHeld is the type of the condition that is True while an EvictionPolicy holds
// due pods.
const ConditionHeld = "Held"

// EvictionPolicyStatus is the observed state of an EvictionPolicy.
type EvictionPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// held is the number of pods that are due and that the policy holds, because of its
	// breaker, paused or protect.
	//
	// +optional
	Held int32 `json:"held"`

	// holding lists the objects that have the taints of held pods, with the number of
	// pods. The objects with the most held pods come first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Holding []HeldEvictions `json:"holding,omitempty"`

	// breaker is the count of the breaker. Tollgate writes it before pods leave, so that
	// no pod is missing in the count after a restart or a change of the leader.
	//
	// +optional
	Breaker *EvictionBreakerStatus `json:"breaker,omitempty"`

	// conditions are the conditions of the policy. Ready is True when the policy is in
	// force as written. Held is True while the policy holds pods; its reason is
	// BreakerTripped, Paused or Protected.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HeldEvictions is the number of pods that are held and have to leave because of the
// taints of one object.
type HeldEvictions struct {
	// kind is the kind of the object: Node, DeviceTaintRule, ResourceSlicePatch or
	// ResourceSlice.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the name of the object.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// pods is the number of held pods.
	//
	// +required
	Pods int32 `json:"pods"`
}

// EvictionBreakerStatus is the count of a breaker.
type EvictionBreakerStatus struct {
	// tripped is the time at which the breaker began to hold evictions. It is absent
	// while the breaker holds none.
	//
	// +optional
	Tripped *metav1.MicroTime `json:"tripped,omitempty"`

	// limit is the number of pods that were allowed to leave within the window when the
	// breaker tripped.
	//
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// generation is the generation of the spec with which the breaker tripped.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// granted lists the groups of pods that the breaker allowed to leave within the
	// window. Tollgate writes a group before its pods leave.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Granted []BreakerGrant `json:"granted,omitempty"`

	// writeID is the ID of the last write of this count. If the response to a write is
	// lost, the ID shows whether the API server stored that write or another one.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WriteID string `json:"writeID,omitempty"`
}

// BreakerGrant is the permission for a group of pods to leave.
type BreakerGrant struct {
	// until is the latest time at which a pod of the group may leave.
	//
	// +required
	Until metav1.MicroTime `json:"until"`

	// pods is the number of pods in the group.
	//
	// +required
	Pods int32 `json:"pods"`
}

// AnnotationEvictedBecause is an annotation of events. On events about evicted pods,
// which have the messages of Kubernetes, it contains the taint, its object and the
// device. On summary events about objects with taints, it lists the taints and the
// object.
const AnnotationEvictedBecause = "tollgate.dev/evicted-because"

// The annotations of the events EvictionHeld and EvictionReleased about objects with
// taints.
const (
	// AnnotationHeldTaint is the taint because of which pods are held.
	AnnotationHeldTaint = "tollgate.dev/held-taint"
	// AnnotationHeldReason is the reason, as in the label reason of the metric
	// tollgate_evictions_held.
	AnnotationHeldReason = "tollgate.dev/held-reason"
	// AnnotationHeldPolicy is the name of the EvictionPolicy that holds the pods, if a
	// policy does.
	AnnotationHeldPolicy = "tollgate.dev/held-policy"
)

// AnnotationHeldUpBecause is an annotation of events about pods whose eviction the API
// server refuses. It contains the response of the API server.
const AnnotationHeldUpBecause = "tollgate.dev/held-up-because"
