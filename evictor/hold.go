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

	// carrier is the object that carries the taint, and author the object in which a user wrote
	// it: the carrier, or the ResourceSlicePatch that it was written for.
	carrier, author tracker.Source
	taint           string
}

// holdKey is what the holds of the pods of a group have in common. One event reports the group.
type holdKey struct {
	carrier tracker.Source
	reason  checks.Reason
	// policy is the UID of the policy that holds them, empty for none.
	policy types.UID
}

// key returns the key of the hold in the groups of an object, its carrier or its author.
func (h *hold) key(because tracker.Source) holdKey { return holdKey{because, h.Reason, h.Policy} }

// Held is a pod that is due and held.
type Held struct {
	Key tracker.Key
	// Carrier is the object with the taint that is the earliest reason, or the
	// ResourceSlicePatch that it was written for.
	Carrier tracker.Source
	Reason  checks.Reason
	// Policy and PolicyName are the UID and the name of the policy that holds the pod, empty
	// for none.
	Policy     types.UID
	PolicyName string
	// Since is the start of the hold, by the clock of the API server.
	Since time.Time
}

// WakeHeld queues the pods that a policy holds, all held pods if the UID is empty. It does not
// block.
func (e *Evictor) WakeHeld(policy types.UID) {
	e.woken.Add(1)
	e.PodsChanged(e.state.heldKeys(policy))
}

// NamespaceChanged queues the held pods of a namespace whose labels are new or have changed. It
// does not block.
func (e *Evictor) NamespaceChanged(name string) {
	e.woken.Add(1)
	e.PodsChanged(slices.DeleteFunc(e.governed(), func(key tracker.Key) bool { return key.Namespace != name }))
}

// PoliciesChanged queues the held pods after the EvictionPolicies in force have changed. It does
// not block.
func (e *Evictor) PoliciesChanged() {
	e.woken.Add(1)
	e.rates.Update(e.local.Now(), ratelimit.LimitsOf(e.options.Policies().All()))
	e.PodsChanged(e.governed())
}

// governed returns the held pods. In mode Window, it returns all pods that a taint concerns, because
// policies and labels of namespaces determine which taints have a window.
func (e *Evictor) governed() []tracker.Key {
	if e.options.Mode == ModeWindow {
		return e.tracker.Exposed()
	}
	return e.state.heldKeys("")
}
