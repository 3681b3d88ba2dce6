package taint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
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
func (c *RuleChange) Writes() []Write {
	writes := c.specWrites()
	if c.Adopted && c.Old != nil {
		writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: ofRule(c.Old), Path: field.NewPath("metadata", "ownerReferences")})
	}
	return writes
}

func (c *RuleChange) specWrites() []Write {
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

// limited returns what limits on rules ask of the change; nil where the rule is deleted.
func (c *RuleChange) limited() *ruleWrite {
	if c == nil || c.New == nil {
		return nil
	}
	l := &ruleWrite{
		every:    everyDevice(c.New.DeviceSelector),
		selector: field.NewPath("spec", "deviceSelector"), effect: field.NewPath("spec", "taint", "effect"),
		problem: "names no driver, pool or device, and may select every device", remedy: "name a driver, a pool or a device",
		stood: "the rule did not stand at effect None with this taint and selector before",
	}
	if c.Old != nil {
		// A rule that selects by unknown fields alone counts as one that selects every device.
		l.old, l.everyBefore, l.same = []Taint{ofRule(c.Old)}, !c.Reselected && everyDevice(c.Old.DeviceSelector), c.sameSelector()
	}
	return l
}

// ruleWrite is what limits on rules ask of a write of a rule or a patch.
type ruleWrite struct {
	// old are the taints before the write.
	old []Taint
	// every says that it is for every device, everyBefore that it was, and same that it is for the
	// same devices as before.
	every, everyBefore, same bool
	// selector is the field that selects devices, effect that of the effect; nil if each write names
	// the field of its own.
	selector, effect *field.Path
	// problem and remedy are about a write for every device, stood is about one that was not
	// previewed.
	problem, remedy, stood string
}

// unbounded reports whether a taint is new on every device, or has a more severe effect than
// before. A less severe effect must always be possible.
func (l *ruleWrite) unbounded(t Taint) bool {
	return l.every && (!l.everyBefore || !slices.ContainsFunc(l.old, func(old Taint) bool {
		return old.Key == t.Key && old.Value == t.Value && !moreSevere(t.Effect, old.Effect)
	}))
}

// previewed reports whether a taint evicts no pods, or only those that the status showed before:
// it had effect None, or evicted already, on the same devices.
func (l *ruleWrite) previewed(t Taint) bool {
	return t.Effect != corev1.TaintEffectNoExecute || l.same && slices.ContainsFunc(l.old, func(old Taint) bool {
		return old.Key == t.Key && old.Value == t.Value && (old.Effect == effectNone || old.Effect == corev1.TaintEffectNoExecute)
	})
}

// limitRules reports the violations of the limits on rules, which hold for patches too. They do
// not apply to the removal of a taint.
func (f *violations) limitRules(l *ruleWrite, writes []governed) {
	limits := f.c.limits
	if l == nil || limits == nil {
		return
	}
	unbounded := false
	for i := range writes {
		w := &writes[i]
		if w.operation == v1alpha1.TaintRemove {
			continue
		}
		unbounded = unbounded || l.unbounded(w.New)
		if !limits.RequirePreview || l.previewed(w.New) {
			continue
		}
		path := w.Path
		if l.effect != nil {
			path = l.effect
		} else if path != l.selector {
			path = path.Child("effect")
		}
		f.add(policy.Finding{
			Reason:  policy.PreviewRequired,
			Field:   path.String(),
			Value:   w.New.String(),
			Problem: "evicts pods, and " + l.stood,
			Remedy:  "write it with effect None, read its status, then change the effect alone",
		})
	}
	if limits.RequireSelector && unbounded {
		f.add(policy.Finding{Reason: policy.SelectorRequired, Field: l.selector.String(), Problem: l.problem, Remedy: l.remedy})
	}
}

// everyDevice reports whether a selector selects every device, which the empty one
// does. Nil selects none (C25).
func everyDevice(s *resourcev1.DeviceTaintSelector) bool {
	return s != nil && s.Driver == nil && s.Pool == nil && s.Device == nil
}

const effectNone = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)

// moreSevere reports whether an effect may do more to pods than the old one. An unknown old
// effect counts as None, because it does nothing to pods here: otherwise a rule could be
// created with an unknown effect and then changed to a known one without being judged. The
// same unknown effect is not more severe.
func moreSevere(effect, old corev1.TaintEffect) bool {
	if severity(old) == unknownSeverity {
		return effect != old && severity(effect) > severity(effectNone)
	}
	return severity(effect) > severity(old)
}

// unknownSeverity is the severity of unknown effects.
const unknownSeverity = 3

// severity orders effects by what they do to pods. Scheduler and evictor ignore an unknown
// effect, but those of a later version may not.
func severity(effect corev1.TaintEffect) int {
	switch effect {
	case effectNone:
		return 0
	case corev1.TaintEffectNoSchedule:
		return 1
	case corev1.TaintEffectNoExecute:
		return 2
	case corev1.TaintEffectPreferNoSchedule: // Devices do not have it.
	}
	return unknownSeverity
}

func (c *RuleChange) sameSelector() bool {
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

// limited returns what limits on rules ask of the change; nil where the patch is deleted.
func (c *PatchChange) limited() *ruleWrite {
	if c == nil || c.New == nil {
		return nil
	}
	everyDevice := func(p *v1alpha1.DevicePatch) bool {
		return equality.Semantic.DeepEqual(filterOf(p), v1alpha1.DevicePatchFilter{})
	}
	l := &ruleWrite{
		every: everyDevice(c.New), selector: patchFilterPath,
		problem: "asks for nothing: " + c.named() + " taints every device",
		remedy:  "ask for a class, a driver, a pool or a device, or for what an expression says",
		stood:   c.named() + " did not stand at effect None with this taint and filter before",
	}
	if c.Old != nil {
		l.old, l.everyBefore, l.same = ofPatch(c.Old), everyDevice(c.Old), c.sameFilter()
	}
	return l
}

// named returns how findings name the patch.
func (c *PatchChange) named() string {
	if c.Name == "" {
		return "the ResourceSlicePatch"
	}
	return "ResourceSlicePatch " + policy.Short(c.Name, policy.MaxKeyLength)
}
