package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EvictionPolicy says how NoExecute taints are carried out: by which method, at what
// pace, up to which limit, and who is left alone. Of the policies that select a pod
// and its taint the one with the highest priority decides, then the older, then the
// first by name. Without a policy pods are deleted at once, as Kubernetes does.
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

	// spec is what the policy asks for.
	//
	// +required
	Spec EvictionPolicySpec `json:"spec"`

	// status is what Tollgate says about the policy.
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

// EvictionPolicySpec says which evictions are meant and how they are carried out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.window)",message="window was renamed: write inject"
// +kubebuilder:validation:XValidation:rule="!has(self.deleteAfter) || self.method == 'Evict'",message="deleteAfter needs method Evict: Delete asks no budget"
type EvictionPolicySpec struct {
	// taints are the taints whose evictions are meant. Only NoExecute evicts.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Taints []TaintSelector `json:"taints"`

	// namespaceSelector narrows to pods in namespaces with these labels.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// podSelector narrows to pods with these labels.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// priority decides between policies that select the same pod and taint: the
	// highest wins.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// method is Delete (the default), as Kubernetes does it, or Evict, which honours
	// PodDisruptionBudgets.
	//
	// +optional
	// +kubebuilder:default=Delete
	Method EvictionMethod `json:"method,omitempty"`

	// deleteAfter is how long after the due time a pod that cannot be evicted is
	// deleted in spite of its budget. Never when absent. Only with method Evict.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="not negative"
	DeleteAfter *metav1.Duration `json:"deleteAfter,omitempty"`

	// mark is how pods get the DisruptionTarget condition with method Delete. Before (the
	// default) is as Kubernetes: it is set, then the pod is deleted. ByEvictionAPI takes one
	// request instead of two, for pods that no PodDisruptionBudget selects: the Eviction API
	// sets the condition, with reason EvictionByEvictionAPI, and deletes. WhileTerminating
	// deletes first and sets the condition while the pod terminates, if it lasts that long;
	// pods of Jobs are marked before all the same.
	//
	// +optional
	// +kubebuilder:default=Before
	Mark EvictionMark `json:"mark,omitempty"`

	// pace bounds how fast pods leave.
	//
	// +optional
	Pace *EvictionPace `json:"pace,omitempty"`

	// breaker bounds how many pods leave in a window. When that many have left,
	// further evictions are held until an EvictionApproval lets them go, until what is
	// held fits into the limit, or until the limit is raised.
	//
	// +optional
	Breaker *EvictionBreaker `json:"breaker,omitempty"`

	// protect names pods that are not evicted.
	//
	// +optional
	Protect *EvictionProtection `json:"protect,omitempty"`

	// inject is the toleration that pods and claims are given in mode Window, in which
	// the controllers of Kubernetes are the deadline. Only taints whose key is given in
	// full can have one.
	//
	// +optional
	Inject *EvictionInjection `json:"inject,omitempty"`

	// window is the former name of inject. A request that sets it is refused; a stored
	// policy that has it goes on as if it were inject, and is not Ready.
	//
	// +optional
	Window *EvictionInjection `json:"window,omitempty"`

	// paused holds all evictions that the policy decides about.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// EvictionMethod is how a pod is made to leave.
//
// +kubebuilder:validation:Enum=Delete;Evict
type EvictionMethod string

// The methods.
const (
	// EvictionMethodDelete deletes the pod, as Kubernetes' own controllers do.
	EvictionMethodDelete EvictionMethod = "Delete"
	// EvictionMethodEvict uses the Eviction API, which honours PodDisruptionBudgets.
	EvictionMethodEvict EvictionMethod = "Evict"
)

// EvictionMark is how a pod gets the DisruptionTarget condition.
//
// +kubebuilder:validation:Enum=Before;ByEvictionAPI;WhileTerminating
type EvictionMark string

// The marks.
const (
	// EvictionMarkBefore sets the condition before the pod is deleted, as Kubernetes' own
	// controllers do.
	EvictionMarkBefore EvictionMark = "Before"
	// EvictionMarkByEvictionAPI has the Eviction API set it.
	EvictionMarkByEvictionAPI EvictionMark = "ByEvictionAPI"
	// EvictionMarkWhileTerminating sets it after the pod was deleted.
	EvictionMarkWhileTerminating EvictionMark = "WhileTerminating"
)

// LimitScope says which evictions a pace or a breaker is about.
//
// +kubebuilder:validation:Enum=Decided;Selected
type LimitScope string

// The scopes.
const (
	// LimitScopeDecided counts the evictions that the policy decides about.
	LimitScopeDecided LimitScope = "Decided"
	// LimitScopeSelected counts all evictions that the policy selects, also where another
	// one with a higher priority decides. So one policy that selects everything limits the
	// whole cluster.
	LimitScopeSelected LimitScope = "Selected"
)

// EvictionPace bounds how fast pods leave.
type EvictionPace struct {
	// podsPerSecond is how many pods leave in a second in the long run.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PodsPerSecond int32 `json:"podsPerSecond"`

	// burst is how many may leave at once; podsPerSecond when absent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Burst int32 `json:"burst,omitempty"`

	// scope says which evictions are paced together: those that the policy decides
	// about (Decided, the default) or all that it selects (Selected).
	//
	// +optional
	// +kubebuilder:default=Decided
	Scope LimitScope `json:"scope,omitempty"`
}

// EvictionBreaker bounds how many pods leave in a window.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxPods) || has(self.maxPercent)",message="give maxPods, maxPercent or both"
type EvictionBreaker struct {
	// maxPods is how many pods may leave within the window.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPods *int32 `json:"maxPods,omitempty"`

	// maxPercent is how many of the cluster's pods may leave within the window, at
	// least one.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent *int32 `json:"maxPercent,omitempty"`

	// window is the time over which it is counted.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="between 10s and 24h"
	Window metav1.Duration `json:"window,omitzero"`

	// scope says which evictions are counted and held: those that the policy decides
	// about (Decided, the default) or all that it selects (Selected).
	//
	// +optional
	// +kubebuilder:default=Decided
	Scope LimitScope `json:"scope,omitempty"`
}

// EvictionProtection names pods that are not evicted, by their priority class or their labels,
// in all namespaces or in some.
//
// +kubebuilder:validation:XValidation:rule="has(self.priorityClassNames) || has(self.podSelector)",message="give priorityClassNames, podSelector or both"
type EvictionProtection struct {
	// priorityClassNames are the priority classes of pods that stay.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClassNames []string `json:"priorityClassNames,omitempty"`

	// podSelector selects pods that stay by their labels. It must not be empty: use
	// paused to hold everything.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaces are the namespaces whose pods stay, if priorityClassNames or podSelector
	// name them; a trailing "*" matches every name with that prefix. Without it, pods of
	// all namespaces do: whoever may create pods may give them a priority class and labels.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
}

// EvictionInjection is a toleration that pods and claims are given in mode Window.
type EvictionInjection struct {
	// seconds are the tolerationSeconds of the toleration that pods and claims are given
	// when they are created. For that long the controllers of Kubernetes leave them alone.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	Seconds int64 `json:"seconds"`
}

// ConditionHeld is the condition type of an EvictionPolicy that holds due pods.
const ConditionHeld = "Held"

// EvictionPolicyStatus says what Tollgate says about an EvictionPolicy.
type EvictionPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// held is how many pods have to leave by now and are held back, by this policy's
	// breaker or because of what it says.
	//
	// +optional
	Held int32 `json:"held"`

	// holding names what carries the taints of pods that are held, those with the
	// most pods first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Holding []HeldEvictions `json:"holding,omitempty"`

	// breaker is what the breaker has counted. It is written before pods leave, so
	// that no restart and no other leader counts too few.
	//
	// +optional
	Breaker *EvictionBreakerStatus `json:"breaker,omitempty"`

	// conditions of the policy. Ready is True when the policy is in force as written;
	// Held is True when pods are held, with the reason BreakerTripped, Paused or
	// Protected.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HeldEvictions is how many pods are held that have to leave because of what one object
// carries.
type HeldEvictions struct {
	// kind is Node, DeviceTaintRule, ResourceSlicePatch or ResourceSlice.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name is the object's.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// pods is how many are held because of it.
	//
	// +required
	Pods int32 `json:"pods"`
}

// EvictionBreakerStatus is what a breaker has counted.
type EvictionBreakerStatus struct {
	// tripped is when the breaker began to hold; absent while it does not.
	//
	// +optional
	Tripped *metav1.MicroTime `json:"tripped,omitempty"`

	// limit is how many pods could leave within the window when it tripped.
	//
	// +optional
	Limit int32 `json:"limit,omitempty"`

	// generation is the generation of the spec by which it tripped.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// granted are the pods that were given leave to go within the window, a few at a
	// time and before they went.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Granted []BreakerGrant `json:"granted,omitempty"`

	// writeID is of the last write of all this. It tells after a lost answer whether the
	// write went through, or another one did.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WriteID string `json:"writeID,omitempty"`
}

// BreakerGrant is leave for some pods to go.
type BreakerGrant struct {
	// until is when the last of them may have gone.
	//
	// +required
	Until metav1.MicroTime `json:"until"`

	// pods is how many.
	//
	// +required
	Pods int32 `json:"pods"`
}

// AnnotationEvictedBecause is the annotation of events on evicted pods, whose messages are
// those of Kubernetes: the taint, its object and the device. On the summary events of
// objects that carry taints, it lists the taints and the object.
const AnnotationEvictedBecause = "tollgate.dev/evicted-because"

// Annotations of the events EvictionHeld and EvictionReleased on objects that carry taints.
const (
	// AnnotationHeldTaint is the taint because of which pods are held.
	AnnotationHeldTaint = "tollgate.dev/held-taint"
	// AnnotationHeldReason is the reason, as in the metric tollgate_evictions_held.
	AnnotationHeldReason = "tollgate.dev/held-reason"
	// AnnotationHeldPolicy is the name of the EvictionPolicy that holds the pods, if one does.
	AnnotationHeldPolicy = "tollgate.dev/held-policy"
)

// AnnotationHeldUpBecause is the annotation of events on pods that the API server does not let go:
// its answer.
const AnnotationHeldUpBecause = "tollgate.dev/held-up-because"
