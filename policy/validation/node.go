package validation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeTaintsPath is the field of a node's taints, where a user finds them. The paths of the API
// server begin with metadata.taints (AV-22), where taints were in the days of annotations.
var nodeTaintsPath = field.NewPath("spec", "taints")

// StampInput is a write of a node's taints.
type StampInput struct {
	// Old holds the taints before the write: none when the node is created.
	Old []corev1.Taint
	// New holds the taints as the request has them.
	New []corev1.Taint
	// NodeLifecycleController says that the request comes from the controller that
	// taints nodes which are not ready or unreachable.
	NodeLifecycleController bool
	// Outage is the time since which the node has been tainted because it failed, where that
	// controller has removed the taints meanwhile: see Outage. It is zero if unknown.
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
// there and inherits it. The clock of the controller may be ahead, which must not get
// its taints refused: from it, a time in the future is now.
//
// To start a taint's time again, remove it and add it in a second write, or give a
// time that is further than 5 s from now.
//
// Lists that are invalid get times like others; StampNode judges nothing. Stamping the
// outcome again changes nothing.
func StampNode(in StampInput) []NodeTimeAdded {
	if sameNodeTaints(in.New, in.Old) {
		return nil
	}
	var times []NodeTimeAdded
	old := existingOf(in.Old, nodeTaint)
	for i := range in.New {
		t := nodeTaint(&in.New[i])
		if old.taints.Has(t) {
			continue
		}
		at, added := nodeTimeAdded(t, old, &in), in.New[i].TimeAdded
		if added == nil || !added.Time.Equal(at) {
			times = append(times, NodeTimeAdded{Index: i, TimeAdded: metav1.NewTime(at)})
		}
	}
	return times
}

// nodeTimeAdded returns the time of a taint that is added or changed.
func nodeTimeAdded(t taint, old existing, in *StampInput) time.Time {
	added, now, since := t.added, in.Now.Truncate(time.Second), old.since[t.identity()]
	switch pair, failed := pairedTaints[t.identity()]; {
	case in.NodeLifecycleController && failed:
		return earliest(added, now, since, old.since[pair], in.Outage)
	case in.NodeLifecycleController:
		return earliest(added, now, since)
	case added.IsZero():
		return cmp.Or(since, now)
	case now.Sub(added).Abs() <= restampWindow:
		return earliest(added, since)
	default:
		return added
	}
}

// The taints that say that a node has failed.
var (
	notReady    = identity{key: corev1.TaintNodeNotReady, effect: string(corev1.TaintEffectNoExecute)}
	unreachable = identity{key: corev1.TaintNodeUnreachable, effect: string(corev1.TaintEffectNoExecute)}
)

// pairedTaints has the taint that the node lifecycle controller puts in the place of another when a
// node that was not ready becomes unreachable, and the other way round.
var pairedTaints = map[identity]identity{notReady: unreachable, unreachable: notReady}

// sameNodeTaints reports whether two lists hold the same taints in the same order, which is
// what nearly every update of a node brings.
func sameNodeTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return nodeTaint(&a) == nodeTaint(&b) })
}

// ValidateNode returns the errors of taints as those of a node that had old
// (none when it is created). Taints that the request neither adds nor changes are not judged
// again. A time may be at most maxSkew ahead of now; a negative maxSkew allows any.
// The time of a taint is judged when it changes: a time that was there before is no obstacle
// to a change of the value.
//
// Key and value must be those of a label, an effect must be there, and two taints
// must not have the same key and effect, as the API server has it (AV-21). An unknown
// effect is left to the API server, which may be newer.
func ValidateNode(taints, old []corev1.Taint, now time.Time, maxSkew time.Duration) field.ErrorList {
	if sameNodeTaints(taints, old) {
		return nil
	}
	var errs field.ErrorList
	before := existingOf(old, nodeTaint)
	count, oldCount := make(map[identity]int, len(taints)), make(map[identity]int, len(old))
	for i := range old {
		oldCount[nodeTaint(&old[i]).identity()]++
	}
	for i := range taints {
		t := nodeTaint(&taints[i])
		if count[t.identity()]++; count[t.identity()] > max(1, oldCount[t.identity()]) {
			err := field.Duplicate(nodeTaintsPath.Index(i), taints[i].ToString())
			err.Detail = "another taint has this key and effect: a node has one of each"
			errs = append(errs, err)
		}
		if before.taints.Has(t) {
			continue
		}
		path := nodeTaintsPath.Index(i)
		errs = append(errs, validateTaint(t, "NoSchedule, PreferNoSchedule and NoExecute", path)...)
		if at := t.added; maxSkew >= 0 && at.After(now.Add(maxSkew)) && !at.Equal(before.since[t.identity()]) {
			errs = append(errs, field.Invalid(path.Child("timeAdded"), at.Format(time.RFC3339), fmt.Sprintf(
				"is more than %s ahead of %s: leave it out to have it set to the present",
				maxSkew, now.UTC().Format(time.RFC3339))))
		}
	}
	return errs
}

// MaxNodeTaints is the number of taints that a node may have. Kubernetes has no limit of its own, and no
// node needs a hundredth of it: the cost of a write of a node grows with their number.
const MaxNodeTaints = 1000

// ValidateNodeCount returns the errors of the number of a node's taints, which were old. A node
// that has too many may get rid of some.
func ValidateNodeCount(taints, old []corev1.Taint) field.ErrorList {
	if len(taints) <= MaxNodeTaints || len(taints) <= len(old) {
		return nil
	}
	return field.ErrorList{field.TooMany(nodeTaintsPath, len(taints), MaxNodeTaints)}
}

// backDatedAfter is the age up to which the time of a NoExecute taint causes no warning:
// clocks and queues account for less.
const backDatedAfter = time.Minute

// NodeWarnings says which of the taints that a request brings begin in the past. It is
// legal to give such a time, and moves a taint to another node without granting its pods
// their seconds once more; but a mistyped time evicts pods that were meant to stay for a
// while. The request is not the cause of a time that the same taint had before, or that the
// node lifecycle controller's taints hand to each other.
func NodeWarnings(taints, old []corev1.Taint, now time.Time) []string {
	if sameNodeTaints(taints, old) {
		return nil
	}
	var warnings []string
	before := existingOf(old, nodeTaint)
	for i := range taints {
		t := nodeTaint(&taints[i])
		at := t.added
		if at.IsZero() || taints[i].Effect != corev1.TaintEffectNoExecute || !at.Before(now.Add(-backDatedAfter)) {
			continue
		}
		since := before.since[t.identity()]
		since = earliest(since, before.since[pairedTaints[t.identity()]])
		if since.IsZero() || at.Before(since) {
			warnings = append(warnings, fmt.Sprintf(
				"%s: %s has been there for %s by its timeAdded %s: pods that tolerate it for a while may be due at once",
				nodeTaintsPath.Index(i), taints[i].ToString(), now.Sub(at).Truncate(time.Second), at.Format(time.RFC3339)))
		}
	}
	return warnings
}

// Ready is the condition Ready of a node: its status and the time of its last change.
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

// Failed reports whether the node is not ready, or its state cannot be read.
func (r Ready) Failed() bool {
	return r.Status == corev1.ConditionFalse || r.Status == corev1.ConditionUnknown
}

// Outage is the state of a node that has failed and is tainted for it, with effect NoExecute.
//
// The node lifecycle controller takes these taints off all nodes after each of its restarts,
// before it adds them to those that have failed. Between its two writes nothing on the node
// says how long it was tainted: only a record of the outage does.
type Outage struct {
	// Since is the earliest time of the taints.
	Since time.Time
	// Ready is the condition of the node when the taints were last seen.
	Ready Ready
}

// OutageOf returns the outage of a node with these taints; false if there is none that could
// be distinguished from a later one.
func OutageOf(taints []corev1.Taint, ready Ready) (Outage, bool) {
	o := Outage{Ready: ready}
	for i := range taints {
		t := nodeTaint(&taints[i])
		if _, failed := pairedTaints[t.identity()]; failed {
			o.Since = earliest(o.Since, t.added)
		}
	}
	return o, !o.Since.IsZero() && ready.Failed() && !ready.Since.IsZero()
}

// SinceFor returns the time since which the node has been tainted if it is tainted again with
// this condition; zero if that is another outage. While the condition has not changed the node was
// not ready in between. One that has changed may have been True for a while, and then the
// taints count anew.
func (o Outage) SinceFor(ready Ready) time.Time {
	if !ready.Failed() || ready.Status != o.Ready.Status || !ready.Since.Equal(o.Ready.Since) {
		return time.Time{}
	}
	return o.Since
}
