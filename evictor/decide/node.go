package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// onNode appends the reasons that a pod has to leave because of the taints of its
// node.
//
// A taint counts from when it was added or the pod came, whichever is later:
// otherwise a pod that tolerates a taint for a while would have to leave a node
// that is tainted for long as soon as it lands there, for ever.
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

// podToleration returns for how long the first matching toleration lasts, nil for
// ever. No other counts (NE-04).
func (r Rules) podToleration(tolerations []corev1.Toleration, taint *tracker.Taint) (seconds *int64, tolerated bool) {
	native := taint.Native()
	for i := range tolerations {
		if r.Tolerates(&tolerations[i], &native) {
			return tolerations[i].TolerationSeconds, true
		}
	}
	return nil, false
}
