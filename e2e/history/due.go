package history

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// reason is one taint because of which a pod has to leave.
type reason struct {
	// carrier is the object that carries the taint.
	carrier name
	target  v1alpha1.TaintTarget
	driver  string
	key     string
	value   string
	// at is the earliest time, by the clock of the API server, at which the pod may
	// be made to leave. By the time by it has to leave: a pod that came to its node
	// after the taint did is not late.
	at, by time.Time
}

// longest is longer than a history, and so longer than for ever.
const longest = 1000 * time.Hour

// after returns when so many seconds after a time are over; false for never.
func after(from time.Time, seconds *int64) (at time.Time, ever bool) {
	switch {
	case seconds == nil || *seconds > int64(longest/time.Second):
		return time.Time{}, false
	case *seconds <= 0:
		return from, true
	}
	return from.Add(time.Duration(*seconds) * time.Second), true
}

// evictable reports whether a pod is one that taints make leave.
func evictable(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !mirror &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// bound returns when a pod came to its node, cut off to the second.
func bound(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// onNode returns the reasons that a version of its node is for a pod to leave.
func (x *index) onNode(pod *corev1.Pod, v *Version) []reason {
	node, _ := v.Object.(*corev1.Node)
	var reasons []reason
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		since := x.taintedSince(v, taint)
		from := since
		if came := bound(pod); came.After(from) {
			from = came
		}
		by := from
		seconds, tolerated := toleration(pod.Spec.Tolerations, taint)
		if tolerated {
			at, ever := after(from, seconds)
			if !ever {
				continue
			}
			since, by = at, at
		}
		reasons = append(reasons, reason{
			carrier: nameOf(v), target: v1alpha1.TaintTargetNode, key: taint.Key, value: taint.Value, at: since, by: by,
		})
	}
	return reasons
}

// toleration returns for how long the first toleration that matches lasts.
func toleration(tolerations []corev1.Toleration, taint *corev1.Taint) (seconds *int64, tolerated bool) {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect {
			continue
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			if t.Key == "" || t.Key == taint.Key {
				return t.TolerationSeconds, true
			}
		case corev1.TolerationOpEqual, "":
			if t.Key == taint.Key && t.Value == taint.Value {
				return t.TolerationSeconds, true
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			// Behind a feature gate that is off.
		}
	}
	return nil, false
}

// taintedSince returns from when a taint of a node counts: from the time that it
// bears, or no earlier than this from when it came.
func (x *index) taintedSince(v *Version, taint *corev1.Taint) time.Time {
	if taint.TimeAdded != nil {
		return taint.TimeAdded.Time
	}
	came := v.Seen
	chain := x.chains[nameOf(v)]
	for _, earlier := range slices.Backward(chain) {
		if earlier.Revision > v.Revision {
			continue
		}
		if !bears(earlier, taint) {
			break
		}
		came = earlier.Seen
	}
	_, least := x.ahead(came.Add(-delivery), came)
	return came.Add(least - delivery)
}

// delivery is by how much later than it came to be a version may be seen.
const delivery = 2 * time.Second

// bears reports whether a version of a node has a taint without a time.
func bears(v *Version, taint *corev1.Taint) bool {
	node, _ := v.Object.(*corev1.Node)
	if v.Gone {
		return false
	}
	for _, other := range node.Spec.Taints {
		if other.Key == taint.Key && other.Effect == taint.Effect && other.TimeAdded == nil {
			return true
		}
	}
	return false
}

// earliest returns the first of the times of reasons.
func earliest(reasons []reason) time.Time {
	first := time.Unix(math.MaxInt32, 0)
	for _, r := range reasons {
		if r.at.Before(first) {
			first = r.at
		}
	}
	return first
}
