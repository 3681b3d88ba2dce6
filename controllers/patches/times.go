package patches

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// timesOf returns since when the taints of a patch count that have no time themselves,
// in the order of the spec, by what was recorded before and by now. As for nodes, the
// time is kept by key and effect: another value does not start the clock again.
func timesOf(patch *v1alpha1.ResourceSlicePatch, now time.Time) []v1alpha1.PatchedTaint {
	var times []v1alpha1.PatchedTaint
	for _, taint := range patch.Spec.Devices.Taints {
		if !taint.TimeAdded.IsZero() {
			continue
		}
		taint.TimeAdded = new(metav1.NewTime(now.Truncate(time.Second)))
		if before := recorded(patch, &taint); before != nil {
			taint.TimeAdded = before
		}
		times = append(times, taint)
	}
	return times
}

func recorded(patch *v1alpha1.ResourceSlicePatch, taint *v1alpha1.PatchedTaint) *metav1.Time {
	for i := range patch.Status.Taints {
		if before := &patch.Status.Taints[i]; before.Key == taint.Key && before.Effect == taint.Effect && before.TimeAdded != nil {
			return before.TimeAdded
		}
	}
	return nil
}

// datedTaints returns the taints of a patch, each with a time: its own, or the recorded
// one among times.
func datedTaints(patch *v1alpha1.ResourceSlicePatch, times []v1alpha1.PatchedTaint) []resourcev1.DeviceTaint {
	dated := make([]resourcev1.DeviceTaint, 0, len(patch.Spec.Devices.Taints))
	for _, taint := range patch.Spec.Devices.Taints {
		if taint.TimeAdded.IsZero() {
			taint, times = times[0], times[1:]
		}
		// A rule has whole seconds, while a patch keeps what was written.
		since := metav1.NewTime(taint.TimeAdded.Truncate(time.Second))
		dated = append(dated, resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect, TimeAdded: &since})
	}
	return dated
}
