package evictor

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/tracker"
)

// hold is one reason of a pod that is due and held.
type hold struct {
	episode

	// policy is the name of the policy that holds, taint what is held.
	policy, taint string
	// author is the object in which the taint was written: the carrier, or its patch.
	author tracker.Source
}

// whole returns the episode of all that the author of the taint is the reason of.
func (h *hold) whole() episode {
	return episode{carrier: h.author, reason: h.reason, policy: h.episode.policy}
}

// episode is what holds of many pods have in common: one event tells of them.
type episode struct {
	carrier tracker.Source
	reason  checks.Reason
	// policy is the UID of the policy that holds, empty for none.
	policy types.UID
}

// newHold returns the hold of a reason that is held.
func newHold(of *dueReason) hold {
	return hold{
		episode: episode{carrier: of.Taint.Source, reason: of.held.Reason, policy: of.held.Policy},
		policy:  of.held.PolicyName, taint: of.Taint.String(), author: of.Taint.Author(),
	}
}

// Held is a pod that has to leave by now and is held.
type Held struct {
	Key tracker.Key
	// Carrier is the object whose taint is the earliest reason to leave, or the patch that
	// it is written out for.
	Carrier tracker.Source
	Reason  checks.Reason
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
	e.rates.Update(e.local.Now(), ratelimit.LimitsOf(e.options.Policies().All()))
	if e.options.Mode == ModeWindow {
		// The policies say for which taints there is a window at all.
		e.PodsChanged(e.tracker.Exposed())
		return
	}
	e.PodsChanged(e.book.heldKeys(""))
}
