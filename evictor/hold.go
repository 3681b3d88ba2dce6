package evictor

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// HoldReason is why a pod that has to leave by now stays. The values are metric labels.
type HoldReason string

// The reasons.
const (
	// HoldPaused says that the policy that governs the eviction is paused.
	HoldPaused HoldReason = "paused"
	// HoldProtected says that the policy that governs the eviction protects the pod.
	HoldProtected HoldReason = "protected"
	// HoldNodesDown says that every node is down, which is more likely a fault of the
	// control plane than of all nodes at once (J03).
	HoldNodesDown HoldReason = "nodes_down"
	// HoldLooping says that the pods of one controller are evicted again and again
	// because of one taint (J12).
	HoldLooping HoldReason = "looping"
	// HoldTwinMissing says that nothing keeps the pod from coming back yet: in mode
	// Window the NoSchedule twin of the taint comes first.
	HoldTwinMissing HoldReason = "twin_missing"
	// HoldNamespaceUnknown says that a policy asks for labels of a namespace that are
	// not known.
	HoldNamespaceUnknown HoldReason = "namespace_unknown"
	// HoldBreakerTripped says that as many pods have left as a breaker lets go.
	HoldBreakerTripped HoldReason = "breaker_tripped"
	// HoldBudget says that a PodDisruptionBudget does not let the pod go.
	HoldBudget HoldReason = "budget"
)

// holdReasons are all of them.
func holdReasons() []HoldReason {
	return []HoldReason{
		HoldPaused, HoldProtected, HoldNodesDown, HoldLooping, HoldTwinMissing, HoldNamespaceUnknown, HoldBreakerTripped, HoldBudget,
	}
}

// Condition returns the reason as conditions have it.
func (r HoldReason) Condition() string {
	switch r {
	case HoldPaused:
		return "Paused"
	case HoldProtected:
		return "Protected"
	case HoldNodesDown:
		return "NodesDown"
	case HoldLooping:
		return "Looping"
	case HoldTwinMissing:
		return "TwinMissing"
	case HoldNamespaceUnknown:
		return "NamespaceUnknown"
	case HoldBreakerTripped:
		return "BreakerTripped"
	case HoldBudget:
		return "BudgetExceeded"
	}
	return "Held"
}

// foundByTrying reports whether only an attempt can tell that the hold is over.
func (r HoldReason) foundByTrying() bool { return r == HoldBreakerTripped || r == HoldBudget }

// heldPause is how long a pod that is held is not looked at, unless something happens
// that may end the hold. It bounds what it costs that something of that kind is missed.
const heldPause = 30 * time.Second

// hold is why one taint does not make a pod leave although it is due.
type hold struct {
	episode

	// from is the reason that is held, again when the hold may be over.
	from  decide.Origin
	again time.Duration
	// policy is the name of the policy that holds, taint what is held.
	policy, taint string
	// author is the object in which the taint was written: the carrier, or its patch.
	author tracker.Source
}

// whole returns the episode of all that the author of the taint is the reason of.
func (h *hold) whole() episode {
	return episode{carrier: h.author, reason: h.reason, policy: h.episode.policy}
}

// episode is what holds of many pods have in common: they are told of together.
type episode struct {
	carrier tracker.Source
	reason  HoldReason
	// policy is the UID of the policy that holds, empty for none.
	policy types.UID
}

// newHold returns the hold of a reason by a policy, nil for none.
func newHold(of *decide.Reason, reason HoldReason, by *eviction.Policy) hold {
	h := hold{
		episode: episode{carrier: of.Taint.Source, reason: reason},
		from:    of.Origin(), again: heldPause, taint: of.Taint.String(), author: of.Taint.Author(),
	}
	if by != nil {
		h.episode.policy, h.policy = by.UID, by.Name
	}
	return h
}

// Held is a pod that has to leave by now and is held.
type Held struct {
	Key tracker.Key
	// Carrier is the object whose taint is the earliest reason to leave, or the patch that
	// it is written out for.
	Carrier tracker.Source
	Reason  HoldReason
	// Policy and PolicyName are those of the policy that holds, empty for none.
	Policy     types.UID
	PolicyName string
	// Since is when the pod began to be held, by the API server's clock.
	Since time.Time
}

// Held returns the pods that are held, each with what holds its earliest reason. It
// costs what is held, whatever else is pending.
func (e *Evictor) Held() []Held { return e.book.allHeld() }

// HeldByPolicy returns how many pods the breaker of each policy holds.
func (e *Evictor) HeldByPolicy() map[types.UID]int { return e.book.heldByBreaker() }

// HeldFor returns how many pods are held that have to leave because of the
// DeviceTaintRule or the ResourceSlicePatch with that UID, none if it is empty, and of what holds most of them the
// reason, as conditions have it, and why that is and what ends it.
func (e *Evictor) HeldFor(rule types.UID) (pods int, reason, why string) {
	pods, most := e.book.heldFor(rule)
	if pods == 0 {
		return 0, "", ""
	}
	return pods, most.reason.Condition(), most.reason.Explain(most.policy)
}

// WakeHeld has the pods looked at that a policy holds, all that are held if the UID is
// empty. It does not block.
func (e *Evictor) WakeHeld(policy types.UID) {
	e.woken.Add(1)
	e.PodsChanged(e.book.heldKeys(policy))
}

// NamespaceChanged says that the labels of a namespace have come to be known or are others than
// before. What is held there is looked at. It does not block.
func (e *Evictor) NamespaceChanged(name string) {
	e.woken.Add(1)
	keys := e.book.heldKeys("")
	if e.options.Mode == ModeWindow {
		// The labels say for which taints there is a window at all.
		keys = e.tracker.Exposed()
	}
	e.PodsChanged(slices.DeleteFunc(keys, func(key tracker.Key) bool { return key.Namespace != name }))
}

// PoliciesChanged says that other EvictionPolicies are in force than before. What they
// hold, or held, is looked at. It does not block.
func (e *Evictor) PoliciesChanged() {
	e.woken.Add(1)
	e.lines.Update(e.local.Now(), ratelimit.LimitsOf(e.options.Policies().All()))
	if e.options.Mode == ModeWindow {
		// The policies say for which taints there is a window at all.
		e.PodsChanged(e.tracker.Exposed())
		return
	}
	e.PodsChanged(e.book.heldKeys(""))
}
