package sliceview

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// merge returns a slice with the taints of the rules that select its devices, and
// the slice itself if there are none (TR-07). It depends on the slice and on those
// rules and on nothing else.
func (r *rules) merge(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	in := poolOf(slice)
	pool, naming := r.inPool(in), r.index.HasNamed(in)
	if len(pool.rules) == 0 && !naming {
		return slice
	}
	merged := slice
	for i := range slice.Spec.Devices {
		of := pool
		if id := idAt(slice, i); naming && len(r.index.Named(id)) > 0 {
			of = list{rules: r.index.Match(id)}
		}
		if len(of.rules) == 0 {
			continue
		}
		if merged == slice {
			merged = WithOwnDevices(slice)
		}
		merged.Spec.Devices[i].Taints = of.behind(slice.Spec.Devices[i].Taints)
	}
	return merged
}

// poolOf returns the pool of a slice, as an ID without the name of a device.
func poolOf(slice *resourcev1.ResourceSlice) device.ID {
	return device.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name}
}

// idAt returns the ID of the device at a position of a slice.
func idAt(slice *resourcev1.ResourceSlice, at int) device.ID {
	return poolOf(slice).Device(slice.Spec.Devices[at].Name)
}

// WithOwnDevices returns a copy with a list of devices of its own, which shares
// all that is in the devices.
func WithOwnDevices(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	merged := *slice
	merged.Spec.Devices = slices.Clone(slice.Spec.Devices)
	return &merged
}

// behind returns a device's own taints and those of the list.
func (l list) behind(own []resourcev1.DeviceTaint) []resourcev1.DeviceTaint {
	if len(own) == 0 && l.taints != nil {
		return l.taints
	}
	all := make([]resourcev1.DeviceTaint, 0, len(own)+len(l.rules))
	all = append(all, own...)
	for _, rule := range l.rules {
		all = append(all, *rule.Value)
	}
	return all
}

// looksSame reports whether the devices of two merged forms of one slice have the same
// attributes, capacity and taints, device by device and taint by taint.
func looksSame(a, b *resourcev1.ResourceSlice) bool {
	if a == b {
		return true
	}
	if len(a.Spec.Devices) != len(b.Spec.Devices) {
		return false
	}
	// Devices share lists, so that the same two are not compared again.
	var lastA, lastB []resourcev1.DeviceTaint
	for i := range a.Spec.Devices {
		ours, theirs := &a.Spec.Devices[i], &b.Spec.Devices[i]
		if !slicepatch.SameAttributes(ours.Attributes, theirs.Attributes) || !slicepatch.SameCapacity(ours.Capacity, theirs.Capacity) {
			return false
		}
		if i > 0 && shared(ours.Taints, lastA) && shared(theirs.Taints, lastB) {
			continue
		}
		if !shared(ours.Taints, theirs.Taints) && !slices.EqualFunc(ours.Taints, theirs.Taints, SameTaint) {
			return false
		}
		lastA, lastB = ours.Taints, theirs.Taints
	}
	return true
}

// shared reports whether two lists are one and the same.
func shared(a, b []resourcev1.DeviceTaint) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// SameTaint reports whether two taints are the same, with the time.
func SameTaint(a, b resourcev1.DeviceTaint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect && a.TimeAdded.Equal(b.TimeAdded)
}
