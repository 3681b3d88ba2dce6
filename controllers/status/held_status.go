package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Reasons of the condition Held.
const (
	reasonTripped   = "BreakerTripped"
	reasonPaused    = "Paused"
	reasonProtected = "Protected"
	reasonNothing   = "NothingHeld"

	messageNothing = "No pod is held by this policy."
	// maxHolding is the number of objects that a status names.
	maxHolding = 16
)

// heldPods counts the pods that one policy holds.
type heldPods struct {
	pods int
	// byReason counts pods by the reason of the hold, and carriers by the object with the
	// taint.
	byReason map[evictor.HoldReason]int
	carriers map[carrier]int
}

// carrier names an object that carries taints.
type carrier struct {
	kind tracker.SourceKind
	name string
}

// heldByPolicy returns the held pods by the UID of the policy. It omits pods with a hold
// that no policy sets.
func heldByPolicy(list []evictor.Held) map[types.UID]*heldPods {
	byPolicy := map[types.UID]*heldPods{}
	for i := range list {
		in := &list[i]
		if reasonOf(in.Reason) == "" || in.Policy == "" {
			continue
		}
		h, ok := byPolicy[in.Policy]
		if !ok {
			h = &heldPods{byReason: map[evictor.HoldReason]int{}, carriers: map[carrier]int{}}
			byPolicy[in.Policy] = h
		}
		h.pods++
		h.byReason[in.Reason]++
		h.carriers[carrier{in.Carrier.Kind, in.Carrier.Name}]++
	}
	return byPolicy
}

// reasonOf returns the condition reason for a hold; empty if no policy sets the hold.
func reasonOf(reason evictor.HoldReason) string {
	switch reason {
	case evictor.HoldBreakerTripped:
		return reasonTripped
	case evictor.HoldPaused:
		return reasonPaused
	case evictor.HoldProtected:
		return reasonProtected
	case evictor.HoldNodesDown, evictor.HoldLooping, evictor.HoldTwinMissing, evictor.HoldNamespaceUnknown, evictor.HoldBudget:
		return ""
	default:
		return ""
	}
}

// updateStatus sets the held pods in a status, nil for none, and reports whether the
// status changed.
func updateStatus(policy *v1alpha1.EvictionPolicy, h *heldPods, now metav1.Time) bool {
	if h == nil {
		h = &heldPods{}
	}
	before := policy.Status.DeepCopy()
	policy.Status.Held = int32(min(h.pods, 1<<31-1)) //nolint:gosec // It is bounded.
	policy.Status.Holding = topCarriers(h.carriers)
	stands := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionHeld)
	if h.pods > 0 || stands != nil {
		condition := h.condition()
		condition.ObservedGeneration, condition.LastTransitionTime = policy.Generation, now
		meta.SetStatusCondition(&policy.Status.Conditions, condition)
	}
	return !equality.Semantic.DeepEqual(before, &policy.Status)
}

// topCarriers returns the carriers with the most pods, in descending order.
func topCarriers(carriers map[carrier]int) []v1alpha1.HeldEvictions {
	var list []v1alpha1.HeldEvictions
	for c, pods := range carriers {
		list = append(list, v1alpha1.HeldEvictions{
			Kind: kinds[c.kind], Name: c.name, Pods: int32(min(pods, 1<<31-1)), //nolint:gosec // It is bounded.
		})
	}
	slices.SortFunc(list, func(a, b v1alpha1.HeldEvictions) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Clip(list[:min(len(list), maxHolding)])
}

var kinds = map[tracker.SourceKind]string{
	tracker.SourceNode: "Node", tracker.SourceRule: "DeviceTaintRule", tracker.SourceSlice: "ResourceSlice",
	tracker.SourcePatch: "ResourceSlicePatch",
}

// condition returns the condition Held.
func (h *heldPods) condition() metav1.Condition {
	if h.pods == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse, Reason: reasonNothing, Message: messageNothing,
		}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionTrue}
	var parts []string
	for _, why := range phrases {
		if n := h.byReason[why.reason]; n > 0 {
			parts = append(parts, fmt.Sprintf(why.text, n))
			if condition.Reason == "" {
				condition.Reason = reasonOf(why.reason)
			}
		}
	}
	condition.Message = strings.Join(parts, " ")
	return condition
}

// phrases are the parts of the message, the most important first.
var phrases = []struct {
	reason evictor.HoldReason
	text   string
}{
	{
		evictor.HoldBreakerTripped,
		"Pods held by the breaker: %d. They go when an EvictionApproval for the policy, or for the node, DeviceTaintRule or ResourceSlicePatch, lets them, when all of them fit into the limit, or when the limit is raised.",
	},
	{evictor.HoldPaused, "Pods held because the policy is paused: %d. They go when paused is false."},
	{evictor.HoldProtected, "Pods protected by the policy: %d. They stay as long as protect names them."},
}
