package devices

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Filter says which devices are shown: those that satisfy all that is set.
type Filter struct {
	Driver, Pool, Device string
	// Class is the name of a DeviceClass whose selectors have to select the device as it
	// is shown, which is how a claim meets it.
	Class string
	// Tainted asks for devices with a taint, of whatever effect.
	Tainted bool
	// Patched asks for devices that a ResourceSlicePatch is meant for, or failed on.
	Patched bool
}

func (f *Filter) pool(name poolName) bool {
	return (f.Driver == "" || f.Driver == name.driver) && (f.Pool == "" || f.Pool == name.pool)
}

func (f *Filter) names(id device.ID) bool {
	return f.pool(poolName{driver: id.Driver, pool: id.Pool}) && (f.Device == "" || f.Device == id.Name)
}

// slice reports whether a slice may have a device to show.
func (f *Filter) slice(slice *resourcev1.ResourceSlice) bool {
	return f.Device == "" || hasDevice(slice, f.Device)
}

// shows reports whether a device satisfies the filter.
func (v *Inventory) shows(d *Device) bool {
	f := &v.filter
	switch {
	case !f.names(d.Device),
		f.Tainted && len(d.Taints) == 0,
		f.Patched && len(d.Patches)+len(d.Failed) == 0:
		return false
	case f.Class == "":
		return true
	default:
		return v.class != nil && v.class.selects(d)
	}
}
