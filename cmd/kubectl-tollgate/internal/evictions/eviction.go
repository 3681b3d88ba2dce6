package evictions

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// State is the state of the eviction of a pod.
type State string

// The states, in the order in which pods leave.
const (
	// Leaving is a pod whose deletion has begun.
	Leaving State = "Leaving"
	// Due is a pod whose deadline has passed, without a known hold.
	Due State = "Due"
	// Waiting is a pod whose deadline is in the future.
	Waiting State = "Waiting"
	// Blocked is a due pod whose eviction the API server refuses.
	Blocked State = "Blocked"
	// Held is a due pod that Tollgate does not evict for now.
	Held State = "Held"
	// Paused is a pod whose EvictionPolicy is paused, due or not.
	Paused State = "Paused"
	// Protected is a pod that its EvictionPolicy protects, due or not.
	Protected State = "Protected"
)

// States returns all states, in that order.
func States() []State { return []State{Leaving, Due, Waiting, Blocked, Held, Paused, Protected} }

// Eviction is a pod that has to leave.
type Eviction struct {
	tracker.Key

	Node  string
	State State
	// At is the deadline: the time of the first of Because.
	At time.Time
	// Because are the taints that evict it: first the one that State, At and Hold refer to, then
	// the others, the earliest first. It is never empty.
	Because []evictor.Reason
	// By is who evicts it: ByTollgate or ByKubernetes.
	By string
	// Policy is the name of the EvictionPolicy that governs the first reason, empty for
	// none.
	Policy string
	// Hold is the hold of the pod, zero for none.
	Hold Hold
	// Disruption is the reason of the condition DisruptionTarget, empty for none. For a Leaving
	// pod it names the cause.
	Disruption string
	// Writers are the field managers of the taints, by source; nil if not requested. The map is
	// shared.
	Writers map[tracker.Source]string
}

// The values of Eviction.By.
const (
	ByTollgate   = "Tollgate"
	ByKubernetes = "Kubernetes"
)

// Hold is a delay of an eviction.
type Hold struct {
	// Reason is the evictor's reason.
	Reason evictor.HoldReason
	// By is the object that holds, as kind/name or kind/namespace/name; empty for none.
	By string
	// Why describes the cause, and what ends it.
	Why string
	// Since is the start of the hold, zero if unknown.
	Since time.Time
	// Until is when the hold ends at the latest, zero for never.
	Until time.Time
	// Word is the source of the hold, such as an event.
	Word string
}

// None reports whether there is no hold.
func (h *Hold) None() bool { return h.Reason == "" }

// compare orders pods by when they leave.
func compare(a, b *Eviction) int {
	rank := func(e *Eviction) int { return slices.Index(States(), e.State) }
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)), a.At.Compare(b.At),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}
