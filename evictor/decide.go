package evictor

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Verdict says what is to become of a pod. The zero Verdict keeps it.
type Verdict uint8

// The verdicts.
const (
	Keep Verdict = iota
	EvictAt
)

// String returns the verdict as it is written in logs.
func (v Verdict) String() string {
	if v == EvictAt {
		return "evict"
	}
	return "keep"
}

// Reason is one taint because of which a pod has to leave.
type Reason struct {
	Taint tracker.Taint
	// Tolerated is true when the pod tolerates the taint for a while.
	Tolerated bool
	// At is when the pod has to leave because of this taint.
	At time.Time
}

// Decision is a verdict and what led to it.
type Decision struct {
	Verdict Verdict
	// At is the deadline when the verdict is EvictAt: the earliest of Because.
	At time.Time
	// Wait is how long it is until then; zero when the pod has to leave now.
	Wait time.Duration
	// Because holds every taint with a deadline, the earliest first.
	Because []Reason
}

// Rules are the choices a cluster has about what a decision means. The zero
// Rules are those of Kubernetes by default.
type Rules struct {
	// ComparisonOperators lets the operators Lt and Gt match, as Kubernetes does
	// with its feature gate TaintTolerationComparisonOperators.
	ComparisonOperators bool
	// MaxHold bounds for how long a taint with a time in the future may wait for
	// it, counted from when the taint was seen. That is remembered in memory alone,
	// so a new leader counts anew. Zero stands for no bound.
	MaxHold time.Duration
}

// resolution is how finely the API stores times. It cuts the rest off, so the
// instant that a stored time stands for lies up to this much later.
const resolution = time.Second

// longest is the longest toleration that can be counted with. A longer one is for
// ever (NE-27).
const longest = math.MaxInt64 / int64(time.Second)

// Decide reports what is to become of pod, by the rules of Kubernetes.
func Decide(now time.Time, pod tracker.Pod, taints []tracker.Taint) Decision {
	return Rules{}.Decide(now, pod, taints)
}

// Decide reports what is to become of pod under the given NoExecute taints of its
// node. Only Wait depends on now: whoever decides it again, at another time or
// after a restart, gets the same deadline, as long as the taints carry their times
// and none is held by MaxHold.
//
// A taint counts from when it was added or the pod came, whichever is later:
// otherwise a pod that tolerates a taint for a while would have to leave a node
// that is tainted for long as soon as it lands there, for ever. The first
// toleration that matches a taint is the one that counts (NE-04), and the pod has
// to leave at the earliest of all deadlines (NE-03, NE-05).
//
// Pods that are over, on their way out, or without a node stay as they are, and
// so do mirror pods: the kubelet runs a static pod whether or not the API holds
// an image of it, and makes a new image at once.
func (r Rules) Decide(now time.Time, pod tracker.Pod, taints []tracker.Taint) Decision {
	if pod.NodeName == "" || pod.Finished || pod.Terminating || pod.Mirror {
		return Decision{}
	}
	var because []Reason
	for i := range taints {
		if reason, ok := r.judge(pod, &taints[i]); ok {
			because = append(because, reason)
		}
	}
	if len(because) == 0 {
		return Decision{}
	}
	slices.SortStableFunc(because, func(a, b Reason) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Taint.String(), b.Taint.String()))
	})
	at := because[0].At
	return Decision{Verdict: EvictAt, At: at, Wait: max(at.Sub(now), 0), Because: because}
}

// judge returns when pod has to leave because of taint; false means never.
func (r Rules) judge(pod tracker.Pod, taint *tracker.Taint) (Reason, bool) {
	reason := Reason{Taint: *taint, At: r.start(pod, taint)}
	seconds, tolerated := r.toleration(pod.Tolerations, taint)
	switch {
	case !tolerated:
		return reason, true
	case seconds == nil || *seconds > longest:
		return Reason{}, false
	case *seconds > 0:
		reason.At = reason.At.Truncate(resolution).Add(time.Duration(*seconds) * time.Second).Add(resolution)
	}
	reason.Tolerated = true
	return reason, true
}

// start returns when taint began to count for pod.
func (r Rules) start(pod tracker.Pod, taint *tracker.Taint) time.Time {
	start := taint.TimeAdded
	if r.MaxHold > 0 {
		start = earlier(start, taint.Seen.Add(r.MaxHold))
	}
	return later(start, pod.Bound)
}

// toleration returns for how long the first matching toleration lasts, nil for
// ever.
func (r Rules) toleration(tolerations []corev1.Toleration, taint *tracker.Taint) (seconds *int64, tolerated bool) {
	native := corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}
	for i := range tolerations {
		if tolerates(&tolerations[i], &native, r.ComparisonOperators) {
			return tolerations[i].TolerationSeconds, true
		}
	}
	return nil, false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
