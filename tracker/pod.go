package tracker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// Key names one pod for ever: a pod created anew under the same name has
// another UID and so another key (NE-16).
type Key struct {
	Namespace string
	Name      string
	UID       types.UID
}

// String returns namespace/name, as Kubernetes writes it in events.
func (k Key) String() string {
	return k.Namespace + "/" + k.Name
}

// Pod is the kept part of a pod. Its slices and pointers are shared and must not
// be written to.
type Pod struct {
	Key
	ResourceVersion string
	Generation      int64
	NodeName        string
	Tolerations     []corev1.Toleration
	// Window says which of the tolerations were given to the pod in mode Window; nil for
	// none.
	Window *Window
	// Bound is when the pod came to its node, in whole seconds.
	Bound time.Time
	// Finished is true when the pod is in phase Succeeded or Failed.
	Finished bool
	// Terminating is true once the pod has a deletion timestamp, and stays true.
	Terminating bool
	// Mirror is true for the API's image of a static pod, which the kubelet runs
	// whether or not the API has a pod for it.
	Mirror bool
	// Disruption is the DisruptionTarget condition, nil when there is none.
	Disruption *corev1.PodCondition
	// Claims are the ResourceClaims that the pod uses.
	Claims []PodClaim
	// PodGroup is the name of the group that the pod belongs to, empty for none.
	PodGroup string
	// Origin is what the pod has in common with its replicas; nil where that is not
	// known. It decides nothing.
	Origin *Origin

	// states are those of Claims, one for each, while the pod is recorded; nil for none.
	states *[]*claimState
}

// public returns a copy for others, without the fields that the lock of the tracker guards.
func (p *Pod) public() Pod {
	public := *p
	public.states = nil
	return public
}

// claimStates returns the states of the claims of a recorded pod.
func (p *Pod) claimStates() []*claimState {
	if p.states == nil {
		return nil
	}
	return *p.states
}

// PodOf returns the kept part of pod.
func PodOf(pod *corev1.Pod) Pod {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return Pod{
		Key:             Key{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		ResourceVersion: pod.ResourceVersion,
		Generation:      pod.Generation,
		NodeName:        pod.Spec.NodeName,
		Tolerations:     pod.Spec.Tolerations,
		Window:          windowOf(pod.Annotations),
		Bound:           bound(pod),
		Finished:        pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Terminating:     pod.DeletionTimestamp != nil,
		Mirror:          mirror,
		Disruption:      condition(pod, corev1.DisruptionTarget),
		Claims:          claimsOf(pod),
		PodGroup:        ptr.Deref(ptr.Deref(pod.Spec.SchedulingGroup, corev1.PodSchedulingGroup{}).PodGroupName, ""),
		Origin:          originOf(pod),
	}
}

// claimsOf returns the claims that pod uses: those that it names, those that were
// generated for its templates, and the one behind its extended resources. A claim
// that is yet to be generated, or that turned out not to be needed, is none
// (DE-04). Kubernetes' own evictor leaves out those behind extended resources
// (DE-10).
func claimsOf(pod *corev1.Pod) []PodClaim {
	var claims []PodClaim
	for i := range pod.Spec.ResourceClaims {
		// An error says that there is no name yet.
		if name, generated, _ := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); name != nil {
			claims = append(claims, PodClaim{Name: *name, Generated: generated})
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName != "" {
		claims = append(claims, PodClaim{Name: extended.ResourceClaimName, Generated: true})
	}
	return claims
}

// bound returns when pod came to its node. Binding sets the PodScheduled
// condition. A pod created with a node name gets that condition from the kubelet
// a little later, or never when no kubelet runs; until then its start counts, and
// else its creation.
func bound(pod *corev1.Pod) time.Time {
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if start := pod.Status.StartTime; !start.IsZero() {
		return start.Time
	}
	return pod.CreationTimestamp.Time
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// sameFate reports whether both versions of a pod lead to the same decision.
func sameFate(a, b *Pod) bool {
	return a.NodeName == b.NodeName && a.Bound.Equal(b.Bound) &&
		a.Finished == b.Finished && a.Terminating == b.Terminating && a.Mirror == b.Mirror &&
		a.PodGroup == b.PodGroup && slices.Equal(a.Claims, b.Claims) && sameWindow(a.Window, b.Window) &&
		slices.EqualFunc(a.Tolerations, b.Tolerations, sameToleration)
}

func sameToleration(a, b corev1.Toleration) bool {
	return a.MatchToleration(&b) && ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
}

// Node is the kept part of a node.
type Node struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Taints          []corev1.Taint
	Labels          Labels
}

// NodeOf returns the kept part of node.
func NodeOf(node *corev1.Node) Node {
	return Node{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Taints: node.Spec.Taints, Labels: LabelsOf(node.Labels)}
}
