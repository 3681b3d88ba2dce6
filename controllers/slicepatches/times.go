package slicepatches

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// taintTimes returns the taints of a patch without timeAdded, in the order of the spec,
// with the time that the status records, or now.
func taintTimes(patch *v1alpha1.ResourceSlicePatch, now time.Time) []v1alpha1.PatchedTaint {
	var times []v1alpha1.PatchedTaint
	for _, taint := range patch.Spec.Devices.Taints {
		if !taint.TimeAdded.IsZero() {
			continue
		}
		taint.TimeAdded = new(metav1.NewTime(now.Truncate(time.Second)))
		if before := slicepatch.Since(patch, &taint); before != nil {
			taint.TimeAdded = before
		}
		times = append(times, taint)
	}
	return times
}

// datedTaints returns the taints of a patch, each with its own time, or the one in times.
func datedTaints(patch *v1alpha1.ResourceSlicePatch, times []v1alpha1.PatchedTaint) []resourcev1.DeviceTaint {
	dated := make([]resourcev1.DeviceTaint, 0, len(patch.Spec.Devices.Taints))
	for _, taint := range patch.Spec.Devices.Taints {
		if taint.TimeAdded.IsZero() {
			taint, times = times[0], times[1:]
		}
		// Rules store whole seconds, while patches keep fractions.
		since := metav1.NewTime(taint.TimeAdded.Truncate(time.Second))
		dated = append(dated, resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect, TimeAdded: &since})
	}
	return dated
}
