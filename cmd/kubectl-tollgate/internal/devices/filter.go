package devices

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Filter selects devices that match all set fields.
type Filter struct {
	Driver, Pool, Device string
	// Class is the name of a DeviceClass whose selectors must match the merged device, as for a
	// claim.
	Class string
	// Tainted selects devices with a taint of any effect.
	Tainted bool
	// Patched selects devices that a ResourceSlicePatch selects, or failed on.
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

// shows reports whether a device matches the filter.
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
