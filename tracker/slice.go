package tracker

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Slice is what is kept of a ResourceSlice. Its slices are shared and must not be
// written to.
type Slice struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Driver          string
	Pool            string
	// Generation is that of the pool. Slices of any but the newest generation of
	// their pool count for nothing (DE-16).
	Generation int64
	// Node is the node that the devices belong to; empty for none, or for several.
	Node    string
	Devices []Device

	// seen is when this version was recorded.
	seen time.Time
}

// Device is what is kept of a device in a ResourceSlice.
type Device struct {
	Name   string
	Taints []resourcev1.DeviceTaint
}

// SliceOf returns what is kept of slice.
func SliceOf(slice *resourcev1.ResourceSlice) Slice {
	kept := Slice{
		Name: slice.Name, UID: slice.UID, ResourceVersion: slice.ResourceVersion,
		Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Generation: slice.Spec.Pool.Generation, Node: ptr.Deref(slice.Spec.NodeName, ""),
		Devices: make([]Device, 0, len(slice.Spec.Devices)),
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		kept.Devices = append(kept.Devices, Device{Name: device.Name, Taints: device.Taints})
	}
	return kept
}
