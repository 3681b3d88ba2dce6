package sliceview

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Explanation says where what a device has in the view comes from. It is read-only.
type Explanation struct {
	Device device.ID
	// Patches are the names of those that are meant for the device, in the order in
	// which they win, whether or not anything of them was left to decide.
	Patches []string
	// Failed are the patches of which an expression failed on the device, by name. They
	// do not change it.
	Failed []Failure
	// Limited says why the device keeps the attributes and the capacity that it
	// published, although patches have others for it; empty if it need not.
	Limited string
	// Attributes and Capacity are all that the device has or that its driver published.
	Attributes []slicepatch.Value[resourcev1.DeviceAttribute]
	Capacity   []slicepatch.Value[resourcev1.DeviceCapacity]
	// Taints are those of the device in the view, in the order there.
	Taints []Taint
}

// Failure is why a patch does not change a device.
type Failure struct {
	Patch string `json:"patch"`
	// Message is for the user of the patch.
	Message string `json:"message"`
}

// Taint is a taint, and who put it on a device.
type Taint struct {
	resourcev1.DeviceTaint

	// Patch or Rule is the name of the ResourceSlicePatch or of the DeviceTaintRule. Both
	// are empty if it is the driver.
	Patch, Rule string
}

// Explain says for each device of a slice, in the order there, where what it has in the
// view comes from, and false if there is no such slice. It works it out anew each time,
// and keeps others waiting for as long as that takes for one slice.
func (v *View) Explain(slice string) ([]Explanation, bool) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	e, found := v.slices.byName[slice]
	if !found {
		return nil, false
	}
	list := make([]Explanation, 0, len(e.raw.Spec.Devices))
	for i := range e.raw.Spec.Devices {
		list = append(list, v.explain(e, i))
	}
	return list, true
}

// explain explains the device at a position. The lock is held.
func (v *View) explain(e *entry, at int) Explanation {
	id := idAt(e.raw, at)
	out := Explanation{Device: id}
	var meant []*slicepatch.Patch
	for _, entry := range v.patches.index.Match(id) {
		switch verdict := e.verdict(entry.Value); {
		case verdict.holds(at):
			meant = append(meant, entry.Value.patch)
		case verdict.failed.Bit(at) == 1:
			out.Failed = append(out.Failed, Failure{Patch: entry.Name, Message: entry.Value.problem(e, at, verdict)})
		}
	}
	slices.SortFunc(meant, slicepatch.Compare)
	for _, patch := range meant {
		out.Patches = append(out.Patches, patch.Name)
	}
	explained := slicepatch.Explain(meant, e.raw.Spec.Driver, &e.raw.Spec.Devices[at])
	out.Attributes, out.Capacity = explained.Attributes, explained.Capacity
	if explained.Limited != nil {
		out.Limited = explained.Limited.Error()
	}
	for i, taint := range explained.Device.Taints {
		out.Taints = append(out.Taints, Taint{DeviceTaint: taint, Patch: explained.Taints[i]})
	}
	for _, rule := range v.rules.index.Match(id) {
		out.Taints = append(out.Taints, Taint{DeviceTaint: *rule.Value, Rule: rule.Name})
	}
	return out
}

// problem returns why a patch failed on one device. A verdict knows it only of the first
// of a slice, and what the others of the slice cost may be the reason.
func (p *slicePatch) problem(e *entry, at int, verdict *verdict) string {
	why := verdict.problem
	q := p.question
	q.filter.Ask(q.class, e.see(), q.filter.Names.Device, func(i int, _ bool, err error) {
		if i == at && err != nil {
			why = err.Error()
		}
	})
	return why
}
