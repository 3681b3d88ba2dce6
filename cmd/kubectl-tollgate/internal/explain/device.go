package explain

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/devices"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Device is the explanation of a device.
type Device struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Found  bool   `json:"found"`
	Answer string `json:"answer"`
	// ResourceSlice is where it is published, and Node from where it can be used.
	ResourceSlice string `json:"resourceSlice,omitempty"`
	Node          string `json:"node,omitempty"`
	// Attributes and Capacity are what it has, with the patches that decide it.
	Attributes []string `json:"attributes,omitempty"`
	Capacity   []string `json:"capacity,omitempty"`
	// Patches are those that are meant for it, and Failed those that failed on it and why.
	Patches []string `json:"patches,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Taints  []Taint  `json:"taints,omitempty"`
	// Claims are those that have the device, and Pods those that use it.
	Claims  []string `json:"claims,omitempty"`
	Pods    []Fate   `json:"pods,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Device explains a device.
func (w *World) Device(ctx context.Context, id device.ID, now time.Time) *Device {
	d := &Device{Kind: "Device", Name: id.String(), Missing: w.Missing}
	if w.Inventory != nil {
		for found := range w.Inventory(devices.Filter{Driver: id.Driver, Pool: id.Pool, Device: id.Name}).Devices(ctx) {
			d.describe(found)
		}
	}
	taints := w.Tracker.DeviceTaints(id)
	for i := range taints {
		t := &taints[i]
		d.Taints = append(d.Taints, Taint{Taint: t.String(), Source: sourceWords(t.Author()), Device: id.String(), Since: stamp(t.TimeAdded)})
	}
	for _, claim := range w.Tracker.ClaimsOn(id) {
		d.Claims = append(d.Claims, claim.String())
	}
	d.Pods = w.fates(w.Tracker.PodsUsing(id), now)
	d.Answer = d.answer(taints, now)
	if !d.Found && len(d.Claims) == 0 && (w.Unread["resourceslices"] || w.Unread["deviceclasses"]) {
		d.Answer = "It is not known whether there is a device " + d.Name + ": ResourceSlices and DeviceClasses could not be read."
	}
	return d
}

func (d *Device) describe(found *devices.Device) {
	d.Found, d.ResourceSlice, d.Node = true, found.Slice.Name, found.Node()
	d.Attributes, d.Capacity, d.Patches = found.AttributeTexts(), found.CapacityTexts(), found.Patches
	for _, f := range found.Failed {
		d.Failed = append(d.Failed, f.Patch+": "+f.Message)
	}
}

func (d *Device) answer(taints []tracker.Taint, now time.Time) string {
	if !d.Found && len(d.Claims) == 0 {
		return "Not found: no ResourceSlice publishes device " + d.Name + "."
	}
	var off, out []string
	for i := range taints {
		text := taints[i].String() + " (" + sourceWords(taints[i].Author()) + ")"
		switch taints[i].Effect {
		case corev1.TaintEffectNoExecute:
			out = append(out, text)
		case corev1.TaintEffectNoSchedule:
			off = append(off, text)
		case corev1.TaintEffectPreferNoSchedule:
		}
	}
	var words []string
	if !d.Found {
		words = append(words, "it is not published any more")
	}
	if len(out) > 0 {
		words = append(words, taintsDo(out, "evict")+" who does not tolerate "+itOrThem(len(out)))
	}
	if len(off) > 0 {
		words = append(words, taintsDo(off, "keep")+" claims off that do not tolerate "+itOrThem(len(off)))
	}
	if len(out)+len(off) == 0 {
		words = append(words, "no taint keeps claims off or makes pods leave")
	}
	return sentence(strings.Join(words, "; ") + ": " + tally(d.Pods, now))
}
