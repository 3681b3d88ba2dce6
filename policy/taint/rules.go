package taint

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
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

// Writes returns the changes that a request makes to the taint of a rule. Another key or
// effect removes the old taint and adds a new one, as on a node. Another device selector
// changes the taint, and deletion of the rule removes it. A new owner reference of an
// existing rule also counts as removal, because the garbage collector deletes the rule when
// the owner is gone.
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

// unbounded reports whether the rule newly selects every device, or selects every device and
// has a more severe effect than before. A less severe effect must always be possible. A rule
// that selects by unknown fields alone counts as one that selects every device.
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

// moreSevere reports whether an effect may do more to pods than the old one. An unknown old
// effect counts as None, because it does nothing to pods here: otherwise a rule could be
// created with an unknown effect and then changed to a known one without being judged. The
// same unknown effect is not more severe.
func moreSevere(effect, old resourcev1.DeviceTaintEffect) bool {
	if severity(old) == unknownSeverity {
		return effect != old && severity(effect) > severity(resourcev1.DeviceTaintEffectNone)
	}
	return severity(effect) > severity(old)
}

// unknownSeverity is the severity of unknown effects.
const unknownSeverity = 3

// severity orders effects by what they do to pods. Scheduler and evictor ignore an unknown
// effect, but those of a later version may not.
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

// previewed reports whether the rule evicts no pods, or only those that its status showed
// before: it had effect None, or evicted already, with the same taint and devices.
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
	return !c.Reselected && equality.Semantic.DeepEqual(c.Old.DeviceSelector, c.New.DeviceSelector)
}

// The paths of the judged parts of a ResourceSlicePatch.
var (
	patchTaintsPath = field.NewPath("spec", "devices", "taints")
	patchFilterPath = field.NewPath("spec", "devices", "filter")
)

// PatchChange is a write of a ResourceSlicePatch: Old is nil when it is created, New when
// it is deleted.
type PatchChange struct {
	// Name is that of the patch; empty while it is still to be generated.
	Name     string
	New, Old *v1alpha1.DevicePatch
}

// Writes returns the changes of the taints of the patch. A taint that stays is changed where
// the filter changes, because other devices get it. The other fields of a patch are not
// judged, and without taints there are no writes.
func (c *PatchChange) Writes() []Write {
	d := diff{
		path: patchTaintsPath.Index, gone: patchTaintsPath,
		old: ofPatch(c.Old), now: ofPatch(c.New),
	}
	if len(d.old)+len(d.now) == 0 {
		return nil
	}
	writes, fresh := d.writes()
	if c.New != nil && c.Old != nil && !c.sameFilter() {
		for i, t := range d.now {
			if !slices.Contains(fresh, i) {
				writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: t, New: t, Path: patchFilterPath})
			}
		}
	}
	was, is := patchedDriver(c.Old), patchedDriver(c.New)
	for i := range writes {
		w := &writes[i]
		if w.Operation != v1alpha1.TaintAdd {
			w.Old.Driver = was
		}
		if w.Operation != v1alpha1.TaintRemove {
			w.New.Driver = is
		}
	}
	return writes
}

// ofPatch returns the taints of a patch, nil for none, without the driver.
func ofPatch(p *v1alpha1.DevicePatch) []Taint {
	if p == nil || len(p.Taints) == 0 {
		return nil
	}
	taints := make([]Taint, 0, len(p.Taints))
	for i := range p.Taints {
		t := &p.Taints[i]
		taints = append(taints, OfDevice("", &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded}))
	}
	return taints
}

// patchedDriver returns the driver that a patch names. One that names none may be for
// devices of every driver, whatever class and expressions it asks for.
func patchedDriver(p *v1alpha1.DevicePatch) string {
	if p == nil || p.Filter == nil || p.Filter.Driver == nil {
		return ""
	}
	return *p.Filter.Driver
}

func (c *PatchChange) sameFilter() bool {
	return equality.Semantic.DeepEqual(filterOf(c.Old), filterOf(c.New))
}

// filterOf returns the filter of a patch; an empty one where there is none.
func filterOf(p *v1alpha1.DevicePatch) v1alpha1.DevicePatchFilter {
	if p.Filter == nil {
		return v1alpha1.DevicePatchFilter{}
	}
	return *p.Filter
}

// everyDevicePatched reports whether a patch is for every device.
func everyDevicePatched(p *v1alpha1.DevicePatch) bool {
	return equality.Semantic.DeepEqual(filterOf(p), v1alpha1.DevicePatchFilter{})
}

// unbounded reports whether a taint of the patch is new on every device, or has a more severe
// effect than before. A less severe effect must always be possible.
func (c *PatchChange) unbounded(t *Taint) bool {
	if !everyDevicePatched(c.New) {
		return false
	}
	return c.Old == nil || !everyDevicePatched(c.Old) || !slices.ContainsFunc(c.Old.Taints, func(old v1alpha1.PatchedTaint) bool {
		return old.Key == t.Key && old.Value == t.Value && severity(old.Effect) >= severity(resourcev1.DeviceTaintEffect(t.Effect))
	})
}

// previewed reports whether a taint of the patch evicts no pods, or only those that its status
// showed before: it had effect None, or evicted already, with the same filter.
func (c *PatchChange) previewed(t *Taint) bool {
	if resourcev1.DeviceTaintEffect(t.Effect) != resourcev1.DeviceTaintEffectNoExecute {
		return true
	}
	return c.Old != nil && c.sameFilter() && slices.ContainsFunc(c.Old.Taints, func(old v1alpha1.PatchedTaint) bool {
		return old.Key == t.Key && old.Value == t.Value &&
			(old.Effect == resourcev1.DeviceTaintEffectNone || old.Effect == resourcev1.DeviceTaintEffectNoExecute)
	})
}

// named returns how findings name the patch.
func (c *PatchChange) named() string {
	if c.Name == "" {
		return "the ResourceSlicePatch"
	}
	return "ResourceSlicePatch " + policy.Short(c.Name, policy.MaxKeyLength)
}

// judgePatch reports the violations of the limits on rules, which hold for patches too. They
// do not apply to the removal of a taint.
func (c *compiled) judgePatch(patch *PatchChange, writes []governed, f *violations) {
	if patch == nil || patch.New == nil || c.limits == nil {
		return
	}
	unbounded := false
	for i := range writes {
		w := &writes[i]
		if w.operation == v1alpha1.TaintRemove {
			continue
		}
		unbounded = unbounded || patch.unbounded(&w.New)
		if !c.limits.RequirePreview || patch.previewed(&w.New) {
			continue
		}
		path := w.Path
		if path != patchFilterPath {
			path = path.Child("effect")
		}
		f.add(policy.Finding{
			Reason:  policy.PreviewRequired,
			Field:   path.String(),
			Value:   w.New.String(),
			Problem: "evicts pods, and " + patch.named() + " did not stand at effect None with this taint and filter before",
			Remedy:  "write it with effect None, read its status, then change the effect alone",
		})
	}
	if c.limits.RequireSelector && unbounded {
		f.add(policy.Finding{
			Reason:  policy.SelectorRequired,
			Field:   patchFilterPath.String(),
			Problem: "asks for nothing: " + patch.named() + " taints every device",
			Remedy:  "ask for a class, a driver, a pool or a device, or for what an expression says",
		})
	}
}
