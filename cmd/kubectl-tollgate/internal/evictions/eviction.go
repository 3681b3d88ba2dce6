package evictions

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// State says how far the eviction of a pod is.
type State string

// The states, those that leave first before the others.
const (
	// Leaving is a pod whose deletion has begun.
	Leaving State = "Leaving"
	// Due is a pod that has to leave by now, and of which nothing is known that keeps it.
	Due State = "Due"
	// Waiting is a pod that has to leave later.
	Waiting State = "Waiting"
	// Blocked is a pod that is due and that the API server does not let go.
	Blocked State = "Blocked"
	// Held is a pod that is due and that Tollgate does not evict for now.
	Held State = "Held"
	// Paused is a pod whose EvictionPolicy is paused, whether or not it is due.
	Paused State = "Paused"
	// Protected is a pod that its EvictionPolicy does not let go, whether or not it is due.
	Protected State = "Protected"
)

// States are all of them, in that order.
func States() []State { return []State{Leaving, Due, Waiting, Blocked, Held, Paused, Protected} }

// Eviction is a pod that has to leave.
type Eviction struct {
	tracker.Key

	Node  string
	State State
	// At is when it has to leave: the time of the first of Because.
	At time.Time
	// Because are the taints because of which it has to: first the one that State, At and
	// Hold are about, then the others, the earliest first. It is never empty.
	Because []evictor.Reason
	// By is who evicts it: ByTollgate or ByKubernetes.
	By string
	// Policy is the name of the EvictionPolicy that governs the first reason, empty for
	// none.
	Policy string
	// Hold is what keeps the pod, the zero Hold for nothing.
	Hold Hold
	// Disruption is the reason of the condition DisruptionTarget, empty for none. Of a pod
	// that is Leaving it says who sent it.
	Disruption string
	// Writers are who wrote the taints, by where: nil where nobody asked. It is shared.
	Writers map[tracker.Source]string
}

// Who evicts.
const (
	ByTollgate   = "Tollgate"
	ByKubernetes = "Kubernetes"
)

// Hold is what keeps a pod that has to leave.
type Hold struct {
	// Reason is why, as the evictor calls it.
	Reason evictor.HoldReason
	// By is the object that holds, as kind/name or kind/namespace/name; empty for none.
	By string
	// Why says why, and what ends it.
	Why string
	// Since is since when, as far as that is known, else zero.
	Since time.Time
	// Until is when the pod leaves all the same, zero for never.
	Until time.Time
	// Word is whose word it is: what was read that says so.
	Word string
}

// None reports whether nothing is held.
func (h *Hold) None() bool { return h.Reason == "" }

// compare orders pods: those that leave first before the others.
func compare(a, b *Eviction) int {
	rank := func(e *Eviction) int { return slices.Index(States(), e.State) }
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)), a.At.Compare(b.At),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}
