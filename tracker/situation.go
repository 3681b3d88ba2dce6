package tracker

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Situation is a pod and the NoExecute taints that hold for it, all as of one
// moment. It is what is decided on, and must not be written to.
type Situation struct {
	Pod Pod
	// Taints are those of the pod's node. The tolerations of the pod count.
	Taints []Taint
	// Devices are the tainted devices that the pod uses.
	Devices []TaintedDevice
}

// TaintedDevice is a device with NoExecute taints that a pod uses through a claim.
type TaintedDevice struct {
	ID    device.ID
	Claim ClaimName
	// Tolerations are those of the allocation, which count for the taints here.
	Tolerations []resourcev1.DeviceToleration
	// Window says which of those were given in mode Window; nil for none.
	Window *Window
	Taints []Taint
}
