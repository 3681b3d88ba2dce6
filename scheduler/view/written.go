package view

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Rules are the DeviceTaintRules as an informer knows them, read from its store: what
// the scheduler's tracker has applied was in there before.
type Rules interface {
	// WrittenFor returns those that were written out for patches and that by driver and pool may be
	// for devices of the pool. They are not changed by anyone.
	WrittenFor(driver, pool string) []*resourcev1.DeviceTaintRule
}

// NoRules is for a scheduler whose tracker applies none.
type NoRules struct{}

// WrittenFor returns none.
func (NoRules) WrittenFor(string, string) []*resourcev1.DeviceTaintRule { return nil }

// leaveOut returns a slice of the tracker without the taints of rules that were written
// out for a patch of the set, which says them itself. A rule that the tracker has not
// applied yet leaves nothing to take out, and the slice is another object when it has.
func (g *generation) leaveOut(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	if !slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 }) {
		return slice
	}
	without := slice
	for _, rule := range g.rules.WrittenFor(slice.Spec.Driver, slice.Spec.Pool.Name) {
		if of := tracker.PatchOf(rule); of.UID == "" || !g.set.Has(of.UID) {
			continue // The rule is all that says it.
		}
		for i := range slice.Spec.Devices {
			at := tainted(&without.Spec.Devices[i], rule)
			if at < 0 {
				continue
			}
			if without == slice {
				copied := *slice
				copied.Spec.Devices = slices.Clone(slice.Spec.Devices)
				without = &copied
			}
			taints := without.Spec.Devices[i].Taints
			without.Spec.Devices[i].Taints = slices.Concat(taints[:at], taints[at+1:])
		}
	}
	return without
}

// tainted returns which taint of a device is that of the rule, negative for none. The
// tracker puts those of rules behind those of the driver.
func tainted(d *resourcev1.Device, rule *resourcev1.DeviceTaintRule) int {
	if selector := rule.Spec.DeviceSelector; selector == nil || selector.Device != nil && *selector.Device != d.Name {
		return -1
	}
	for i, taint := range slices.Backward(d.Taints) {
		if of := &rule.Spec.Taint; taint.Key == of.Key && taint.Value == of.Value && taint.Effect == of.Effect && taint.TimeAdded.Equal(of.TimeAdded) {
			return i
		}
	}
	return -1
}
