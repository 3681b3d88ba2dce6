package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// onNode appends the reasons because of the taints of the node of a pod.
//
// The time of a taint starts at its timeAdded or when the pod was bound, whichever is later. Otherwise
// a pod that tolerates a taint for some time would have to leave immediately, again and again, after it
// is bound to a node that was tainted long ago.
func (r Rules) onNode(because []Reason, pod *tracker.Pod, taints []tracker.Taint) []Reason {
	tolerations := pod.Tolerations
	if r.Window {
		tolerations = withoutWindow(tolerations, pod.Window.Tolerations(), (*v1alpha1.WindowToleration).OfPod)
	}
	for i := range taints {
		taint := &taints[i]
		reason := Reason{Taint: *taint, At: Later(r.began(taint), pod.Bound), Position: i}
		seconds, tolerated := r.podToleration(tolerations, taint)
		because = withDeadline(because, reason, seconds, tolerated)
	}
	return because
}

// podToleration returns the seconds of the first matching toleration, nil for no end. No other
// toleration counts (NE-04).
func (r Rules) podToleration(tolerations []corev1.Toleration, taint *tracker.Taint) (seconds *int64, tolerated bool) {
	native := taint.Native()
	for i := range tolerations {
		if r.Tolerates(&tolerations[i], &native) {
			return tolerations[i].TolerationSeconds, true
		}
	}
	return nil, false
}
