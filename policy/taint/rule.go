package taint

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// RuleChange is a write of a DeviceTaintRule: Old is nil when it is created, New when
// it is deleted.
type RuleChange struct {
	New, Old *resourcev1.DeviceTaintRuleSpec
	// Reselected says that the selector of New is not the old one in fields that are not
	// known here (VS-03). By such fields it selects less than it seems to.
	Reselected bool
	// Adopted says that the rule gets another owner. The garbage collector removes it when
	// that is gone, or has never been.
	Adopted bool
}

// Writes returns what the request changes of the taint of the rule. Another key or
// effect is another taint, as it is on a node; other devices are a change of it, and
// the end of the rule is the end of the taint. A rule that gets an owner is left to whoever
// removes that.
func (c RuleChange) Writes() []Write {
	writes := c.specWrites()
	if c.Adopted && c.Old != nil {
		writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: ofRule(c.Old), Path: field.NewPath("metadata", "ownerReferences")})
	}
	return writes
}

func (c RuleChange) specWrites() []Write {
	path := field.NewPath("spec", "taint")
	switch {
	case c.New == nil && c.Old == nil:
		return nil
	case c.Old == nil:
		return []Write{{Operation: v1alpha1.TaintAdd, New: ofRule(c.New), Path: path}}
	case c.New == nil:
		return []Write{{Operation: v1alpha1.TaintRemove, Old: ofRule(c.Old), Path: path}}
	}
	old, now := ofRule(c.Old), ofRule(c.New)
	selected := c.sameSelector()
	switch {
	case old == now && selected:
		return nil
	case old.kind() != now.kind():
		return []Write{
			{Operation: v1alpha1.TaintRemove, Old: old, Path: path},
			{Operation: v1alpha1.TaintAdd, New: now, Path: path, replaced: old},
		}
	case !selected:
		path = field.NewPath("spec", "deviceSelector")
	}
	return []Write{{Operation: v1alpha1.TaintChange, Old: old, New: now, Path: path}}
}

func ofRule(spec *resourcev1.DeviceTaintRuleSpec) Taint {
	driver := ""
	if spec.DeviceSelector != nil && spec.DeviceSelector.Driver != nil {
		driver = *spec.DeviceSelector.Driver
	}
	return OfDevice(driver, &spec.Taint)
}

// unbounded reports whether the rule is over every device and was not before, or does
// more to them than it did: to make such a rule do less must always be possible. What
// selects by nothing but fields that are not known here is taken for a rule over every
// device.
func (c RuleChange) unbounded() bool {
	if !everyDevice(c.New.DeviceSelector) {
		return false
	}
	return c.Old == nil || c.Reselected || !everyDevice(c.Old.DeviceSelector) || c.Old.Taint.Key != c.New.Taint.Key ||
		c.Old.Taint.Value != c.New.Taint.Value || moreSevere(c.New.Taint.Effect, c.Old.Taint.Effect)
}

// everyDevice reports whether a selector selects every device, which the empty one
// does. Nil selects none (C25).
func everyDevice(s *resourcev1.DeviceTaintSelector) bool {
	return s != nil && s.Driver == nil && s.Pool == nil && s.Device == nil
}

// moreSevere reports whether an effect may do more to pods than the old one did. An old
// effect that is not known here is taken for None, which is what it does to pods here: a
// rule could be made with it beside the policies of known effects, and become one of
// these. To keep it is no more than it was.
func moreSevere(effect, old resourcev1.DeviceTaintEffect) bool {
	if severity(old) == unknownSeverity {
		return effect != old && severity(effect) > severity(resourcev1.DeviceTaintEffectNone)
	}
	return severity(effect) > severity(old)
}

// unknownSeverity is that of effects that are not known here.
const unknownSeverity = 3

// severity orders effects by what they do to pods. One that is not known is not
// obeyed, by the scheduler nor by who evicts, and may be in a later version.
func severity(effect resourcev1.DeviceTaintEffect) int {
	switch effect {
	case resourcev1.DeviceTaintEffectNone:
		return 0
	case resourcev1.DeviceTaintEffectNoSchedule:
		return 1
	case resourcev1.DeviceTaintEffectNoExecute:
		return 2
	default:
		return unknownSeverity
	}
}

// previewed reports whether the rule evicts nobody, or those alone that could be seen
// before: it stood at None, or evicted already, with the same taint and devices.
func (c RuleChange) previewed() bool {
	if c.New.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return true
	}
	return c.Old != nil &&
		(c.Old.Taint.Effect == resourcev1.DeviceTaintEffectNone || c.Old.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute) &&
		c.Old.Taint.Key == c.New.Taint.Key && c.Old.Taint.Value == c.New.Taint.Value &&
		c.sameSelector()
}

func (c RuleChange) sameSelector() bool {
	return !c.Reselected && sameSelector(c.Old.DeviceSelector, c.New.DeviceSelector)
}

func sameSelector(a, b *resourcev1.DeviceTaintSelector) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a.Driver, b.Driver) && same(a.Pool, b.Pool) && same(a.Device, b.Device)
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
