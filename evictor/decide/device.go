package decide

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// onDevice appends the reasons because of the taints of a device that a pod uses.
//
// The time of a taint starts at its timeAdded, also for pods that were bound later: the API documents
// that for tolerationSeconds (DE-23). Moving timeAdded is the only way to give running pods more time,
// because the tolerations of an allocation cannot be changed. The API does not accept a taint without
// a time; its time would start when it was first seen (DE-30).
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
