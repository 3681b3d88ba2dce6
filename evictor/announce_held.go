package evictor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The reasons of events about holds, on the objects that carry the taints.
const (
	heldReason     = "EvictionHeld"
	releasedReason = "EvictionReleased"
)

// flushHeld tells of holds that have begun or are over: once for all pods that the
// same thing holds because of the same object.
func (a *announcer) flushHeld(b *book, uidOf func(tracker.Source) types.UID) {
	now := a.clock.Now()
	begun, over := b.news(func() bool { return a.holds.AllowN(now, 1) })
	for i := range begun {
		a.onCarrier(begun[i].carrier, uidOf(begun[i].carrier), corev1.EventTypeWarning, heldReason, "%s", heldMessage(&begun[i]))
	}
	for i := range over {
		a.onCarrier(over[i].carrier, uidOf(over[i].carrier), corev1.EventTypeNormal, releasedReason, "%s", releasedMessage(&over[i]))
	}
}

// heldMessage says what is held, why, and what to do about it.
func heldMessage(of *toldOf) string {
	pods := "1 pod that has"
	if of.pods != 1 {
		pods = fmt.Sprintf("%d pods that have", of.pods)
	}
	return fmt.Sprintf("Holding %s"+leaveForTaint+"%s: %s", pods, of.taint, of.reason.Explain(of.policy))
}

func releasedMessage(of *toldOf) string {
	why := string(of.reason)
	if of.policy != "" {
		why += byPolicy + of.policy
	}
	return fmt.Sprintf("No pod that has"+leaveForTaint+"%s"+noneHeld+"%s)", of.taint, why)
}

// Explain says why pods are held, and what ends it. By is the name of the policy that
// holds, empty for none.
func (r HoldReason) Explain(by string) string {
	policy := "EvictionPolicy " + by
	switch r {
	case HoldPaused:
		return policy + " is paused. Set spec.paused to false to let them go"
	case HoldProtected:
		return policy + " protects them. They stay until the taint goes, or spec.protect is changed"
	case HoldNodesDown:
		return "every node is not ready or unreachable, which is hardly the fault of all of them. They go on when a node is back"
	case HoldLooping:
		return "pods of the same controller are evicted because of it again and again. They go one after the other, more and more slowly; keep new pods off with the effect NoSchedule"
	case HoldTwinMissing:
		return "nothing keeps new pods off yet. They go once the same taint stands there with the effect NoSchedule"
	case HoldNamespaceUnknown:
		return policy + " asks for labels of their namespace, which are not known yet"
	case HoldBreakerTripped:
		return "the breaker of " + policy + " has let as many pods go as it may. Approve with an EvictionApproval for this object or for the policy, or raise spec.breaker"
	case HoldBudget:
		return "their PodDisruptionBudgets do not let them go. This is tried again and again" + budgetEnd(by)
	}
	return string(r)
}

func budgetEnd(policy string) string {
	if policy == "" {
		return ""
	}
	return ", as EvictionPolicy " + policy + " says (method Evict)"
}
