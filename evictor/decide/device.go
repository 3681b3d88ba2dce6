package decide

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// onDevice appends the reasons that a pod has to leave because of the taints of a
// device that it uses.
//
// A taint counts from when it was added, also for a pod that came later: the API
// says so of tolerationSeconds (DE-23), and moving timeAdded is the only way to
// give running pods more time, because the tolerations of an allocation cannot be
// changed. A taint without a time, which the API does not let through, counts from
// when it was first seen (DE-30).
func (r Rules) onDevice(because []Reason, used *tracker.TaintedDevice) []Reason {
	tolerations := used.Tolerations
	if r.Window {
		tolerations = withoutWindow(tolerations, used.Window.Tolerations(), (*v1alpha1.WindowToleration).OfRequest)
	}
	for i := range used.Taints {
		taint := &used.Taints[i]
		reason := Reason{Taint: *taint, Device: used.ID, Claim: used.Claim, At: r.began(taint), Position: i}
		seconds, tolerated := device.Toleration(tolerations, taint.Key, taint.Value, resourcev1.DeviceTaintEffectNoExecute)
		because = withDeadline(because, reason, seconds, tolerated)
	}
	return because
}
