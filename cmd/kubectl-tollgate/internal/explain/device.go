package explain

import (
	"cmp"
	"context"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Device is the explanation of a device.
type Device struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Found  bool   `json:"found"`
	Answer string `json:"answer"`
	// ResourceSlice publishes the device, and Node can use it.
	ResourceSlice string `json:"resourceSlice,omitempty"`
	Node          string `json:"node,omitempty"`
	// Attributes and Capacity have the patches that set them.
	Attributes []string `json:"attributes,omitempty"`
	Capacity   []string `json:"capacity,omitempty"`
	// Patches select the device, and Failed ones failed on it, with the error.
	Patches []string `json:"patches,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Taints  []Taint  `json:"taints,omitempty"`
	// Claims have the device, and Pods use it.
	Claims  []string `json:"claims,omitempty"`
	Pods    []Fate   `json:"pods,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Device explains a device.
func (w *World) Device(ctx context.Context, id device.ID) *Device {
	d := &Device{Kind: "Device", Name: id.String(), Missing: w.Missing()}
	if w.Inventory != nil {
		for found := range w.Inventory.Devices(ctx) {
			if found.Device != id {
				continue
			}
			d.Found, d.ResourceSlice, d.Node = true, found.Slice.Name, found.Node()
			d.Attributes, d.Capacity, d.Patches = found.AttributeTexts(), found.CapacityTexts(), found.Patches
			for _, f := range found.Failed {
				d.Failed = append(d.Failed, f.Patch+": "+f.Message)
			}
		}
	}
	for _, taint := range w.Tracker.DeviceTaints(id) {
		t := matchDevice(nil, &taint)
		t.Device = d.Name
		d.Taints = append(d.Taints, t)
	}
	for _, claim := range w.Tracker.ClaimsOn(id) {
		d.Claims = append(d.Claims, claim.String())
	}
	d.Pods = w.fates(w.Tracker.PodsUsing(id))
	if !d.Found && len(d.Claims) == 0 {
		d.Answer = "Not found: no ResourceSlice publishes device " + d.Name + "."
		if w.Unread("resourceslices") || w.Unread("deviceclasses") {
			d.Answer = "It is not known whether there is a device " + d.Name + ": ResourceSlices and DeviceClasses could not be read."
		}
		return d
	}
	text := cmp.Or(effectWords(d.Taints, "claims"), "no taint keeps claims off or makes pods leave")
	if !d.Found {
		text = "it is not published any more; " + text
	}
	d.Answer = sentence(text + ": " + w.tally(d.Pods, "no pod uses it"))
	return d
}
