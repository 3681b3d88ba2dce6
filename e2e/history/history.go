package history

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// History is what happened, from a quiet beginning to a quiet end.
type History struct {
	// Versions are those of all objects, by revision.
	Versions []Version
	// Writes are what the replicas asked for, in any order.
	Writes []faultproxy.Write
	// Steps are when the clock of the API server was set, in their order, as the
	// replicas saw it.
	Steps []Step
	// Shown is what the leader said in the end.
	Shown Shown
	// Ended is when the history was closed.
	Ended time.Time
	// Limits are what the replicas were promised to keep.
	Limits Limits
}

// Version is an object as it was from some time on.
type Version struct {
	// Seen is when the watch delivered it, which is after it came to be. It is zero for
	// what was there before, which everybody knows of.
	Seen time.Time
	// Revision is etcd's; it orders the versions of all objects.
	Revision int64
	// Gone says that the object was removed; Object is as it was last.
	Gone   bool
	Object client.Object
}

// Step is when the clock of the API server was set.
type Step struct {
	At time.Time
	// Offset is how far it is ahead from then on.
	Offset time.Duration
}

// Shown is what the leader said when the history was closed.
type Shown struct {
	// Held are how many evictions are held, by the reason, from the metrics.
	Held map[string]int
	// Pending is how many evictions the leader says are to come.
	Pending int
}

// Limits are what the replicas are held to. A zero Limits holds them to what is
// promised without any doubt left to them.
type Limits struct {
	// Staleness is how old what is known of the carrier of a taint may be when a pod is
	// evicted, and Policies how old what is known of policies may be.
	Staleness, Policies time.Duration
	// Tolerance is how early an eviction may be.
	Tolerance time.Duration
	// Lease is for how long a lease is held that is not renewed.
	Lease time.Duration
	// Settle is how long a pod may be left after its time when all is quiet.
	Settle time.Duration
}

// Violation is one breach of an invariant.
type Violation struct {
	// Invariant is the one that was broken, such as INV-1.
	Invariant string
	// Message says what happened, in one line.
	Message string
	// At is when, and Objects are the UIDs of the objects that it is about.
	At      time.Time
	Objects []string
}

// String returns the violation as one line.
func (v Violation) String() string {
	return v.Invariant + " at " + v.At.UTC().Format("15:04:05.000") + ": " + v.Message
}

// Check returns all that is wrong with a history, in the order of the invariants.
func Check(h *History) []Violation {
	x := newIndex(h)
	var found []Violation
	for _, check := range []func(*index) []Violation{
		identity, neverWrong, eventually, bounded, leaders,
	} {
		found = append(found, check(x)...)
	}
	return found
}

// Policed returns how many evictions there were of which it is certain what policies said:
// as many as INV-3 and INV-5 could be decided about there.
func Policed(h *History) int {
	x, policed := newIndex(h), 0
	for _, e := range x.evictions {
		if policies, quiet := x.policiesAt(e.write.Sent.Add(-h.Limits.Policies), e.revision); quiet && len(policies) > 0 {
			policed++
		}
	}
	return policed
}

// Outstanding returns the pods that have to leave by now and are left, without a
// reason that can be seen: what there would be to say if nothing happened any more.
func Outstanding(h *History) []Violation {
	return eventually(newIndex(h))
}
