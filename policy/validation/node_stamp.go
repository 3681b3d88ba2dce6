package validation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// restampWindow is how near to now a given time must be to be taken for the clock of
// a client that means "now" rather than for a time that someone chose.
const restampWindow = 5 * time.Second

// StampInput is a write of a node's taints.
type StampInput struct {
	// Old holds the taints before the write: none when the node is created.
	Old []corev1.Taint
	// New holds the taints as the request has them.
	New []corev1.Taint
	// NodeLifecycleController says that the request comes from the controller that
	// taints nodes which are not ready or unreachable.
	NodeLifecycleController bool
	// Outage is since when the node has been tainted because it failed, where that controller
	// has taken the taints off meanwhile: see Outage. It is zero where nobody remembers.
	Outage time.Time
	Now    time.Time
}

// NodeTimeAdded is the time that a taint of StampInput.New is to have.
type NodeTimeAdded struct {
	Index     int
	TimeAdded metav1.Time
}

// StampNode returns the times that are to be set, in the order of the taints; none when
// the request needs no patch. Only taints that the request adds or changes get one,
// of every effect, in whole seconds:
//
//   - without a time: that of the old taint with the same key and effect, else now;
//   - with one: it is respected, and a time in the future is for ValidateNode to
//     refuse;
//   - with one that only says "now" (within 5 s of it), or from the node lifecycle
//     controller: that of the old taint with the same key and effect if it is older;
//   - from that controller with effect NoExecute: that of the outage if it is older.
//
// The node lifecycle controller sets the time of its NoExecute taints to now after
// each of its restarts, and when a node that was not ready becomes unreachable or
// the other way round. It does the latter in two writes, first adding the one taint
// and then removing the other, so the added one finds the time of the other still
// there and inherits it. That its clock may be ahead must not get its taints
// refused: from it, a time in the future is now.
//
// To start a taint's time again, remove it and add it in a second write, or give a
// time that is further than 5 s from now.
//
// Lists that are invalid get times like others; Stamp judges nothing. Stamping the
// outcome again changes nothing.
func StampNode(in StampInput) []NodeTimeAdded {
	if unchanged(in.New, in.Old) {
		return nil
	}
	var times []NodeTimeAdded
	old := standingOf(in.Old)
	for i := range in.New {
		t := &in.New[i]
		if old.has(t) {
			continue
		}
		at := timeAdded(t, old, &in)
		if t.TimeAdded == nil || !t.TimeAdded.Time.Equal(at) {
			times = append(times, NodeTimeAdded{Index: i, TimeAdded: metav1.NewTime(at)})
		}
	}
	return times
}

// timeAdded returns the time of a taint that is added or changed.
func timeAdded(t *corev1.Taint, old standing, in *StampInput) time.Time {
	p, now := pairOf(t), in.Now.Truncate(time.Second)
	given, ok := timeOf(t)
	switch _, failed := p.twin(); {
	case in.NodeLifecycleController && failed:
		return earliest(given, now, old.since[p], old.sinceTwin(p), in.Outage)
	case in.NodeLifecycleController:
		return earliest(given, now, old.since[p])
	case !ok:
		if since := old.since[p]; !since.IsZero() {
			return since
		}
		return now
	case now.Sub(given).Abs() <= restampWindow:
		return earliest(given, old.since[p])
	default:
		return given
	}
}
