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
	*checks.Hold

	// carrier is the object that carries the taint, and author the one in which it was written: the carrier, or
	// its patch.
	carrier, author tracker.Source
	taint           string
}

// episode is what holds of many pods have in common: one event tells of them.
type episode struct {
	carrier tracker.Source
	reason  checks.Reason
	// policy is the UID of the policy that holds, empty for none.
	policy types.UID
}

// episode returns the episode that the hold is part of, because of its carrier or its author.
func (h *hold) episode(because tracker.Source) episode { return episode{because, h.Reason, h.Policy} }

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
