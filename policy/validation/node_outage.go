package validation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Ready is the condition Ready of a node: what it is, and since when.
type Ready struct {
	Status corev1.ConditionStatus
	Since  time.Time
}

// ReadyOf returns the condition Ready of a node; the zero value if it has none.
func ReadyOf(conditions []corev1.NodeCondition) Ready {
	for i := range conditions {
		if c := &conditions[i]; c.Type == corev1.NodeReady {
			return Ready{Status: c.Status, Since: c.LastTransitionTime.Time}
		}
	}
	return Ready{}
}

// Failed reports whether a node is known not to be ready.
func (r Ready) Failed() bool {
	return r.Status == corev1.ConditionFalse || r.Status == corev1.ConditionUnknown
}

// Outage is that a node has failed and is tainted for it, with effect NoExecute.
//
// The node lifecycle controller takes these taints off all nodes after each of its restarts,
// before it adds them to those that have failed. Between its two writes nothing on the node
// says how long it was tainted: whoever remembers the outage does.
type Outage struct {
	// Since is the earliest time of the taints.
	Since time.Time
	// Ready is the condition of the node when the taints were last seen.
	Ready Ready
}

// OutageOf returns the outage of a node with these taints; false if there is none that could
// be told from a later one.
func OutageOf(taints []corev1.Taint, ready Ready) (Outage, bool) {
	o := Outage{Ready: ready}
	for i := range taints {
		if _, failed := pairOf(&taints[i]).twin(); !failed {
			continue
		}
		if at, ok := timeOf(&taints[i]); ok {
			o.Since = earliest(at, o.Since)
		}
	}
	return o, !o.Since.IsZero() && ready.Failed() && !ready.Since.IsZero()
}

// SinceFor returns since when the node has been tainted if it is tainted again with this
// condition; zero if that is another outage. While the condition has not changed the node was
// not ready in between. One that has changed may have been True for a while, and then the
// taints count anew.
func (o Outage) SinceFor(ready Ready) time.Time {
	if !ready.Failed() || ready.Status != o.Ready.Status || !ready.Since.Equal(o.Ready.Since) {
		return time.Time{}
	}
	return o.Since
}
