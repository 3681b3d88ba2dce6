package taint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

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
	var writes []Write
	old, now, path := ofRule(c.Old), ofRule(c.New), field.NewPath("spec", "taint")
	if c.Old != nil && c.New != nil && old.kind() == now.kind() {
		same := c.sameSelector()
		if !same {
			path = field.NewPath("spec", "deviceSelector")
		}
		if !same || old != now {
			writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: old, New: now, Path: path})
		}
	} else {
		if c.Old != nil {
			writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: old, Path: path})
		}
		if c.New != nil {
			writes = append(writes, Write{Operation: v1alpha1.TaintAdd, New: now, Path: path, replaced: old})
		}
	}
	if c.Adopted && c.Old != nil {
		writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: old, Path: field.NewPath("metadata", "ownerReferences")})
	}
	return writes
}

// ofRule returns the taint of a rule; the zero Taint for none.
func ofRule(spec *resourcev1.DeviceTaintRuleSpec) Taint {
	if spec == nil {
		return Taint{}
	}
	driver := ptr.Deref(spec.DeviceSelector, resourcev1.DeviceTaintSelector{}).Driver
	return OfDevice(ptr.Deref(driver, ""), &spec.Taint)
}

// limited returns what limits on rules ask of the change; nil where the rule is deleted.
func (c *RuleChange) limited() *ruleWrite {
	if c == nil || c.New == nil {
		return nil
	}
	l := &ruleWrite{
		every:    everyDevice(c.New.DeviceSelector),
		selector: "spec.deviceSelector", effect: "spec.taint.effect",
		problem: "names no driver, pool or device, and may select every device", remedy: "name a driver, a pool or a device",
		notPreviewed: "the rule did not stand at effect None with this taint and selector before",
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
	// selector is the field that selects devices, effect that of the effect; empty if each write names
	// the field of its own.
	selector, effect string
	// problem and remedy are about a write for every device.
	problem, remedy, notPreviewed string
}

// stood reports whether a taint had such an effect before the write.
func (l *ruleWrite) stood(t Taint, such func(effect corev1.TaintEffect) bool) bool {
	return slices.ContainsFunc(l.old, func(old Taint) bool { return old.Key == t.Key && old.Value == t.Value && such(old.Effect) })
}

// previewed reports whether a taint evicts no pods, or only those that the status showed before:
// it had effect None, or evicted already, on the same devices.
func (l *ruleWrite) previewed(t Taint) bool {
	return t.Effect != corev1.TaintEffectNoExecute || l.same && l.stood(t, func(effect corev1.TaintEffect) bool {
		return effect == effectNone || effect == corev1.TaintEffectNoExecute
	})
}

// limitRules reports the violations of the limits on rules, which hold for patches too. They do
// not apply to the removal of a taint.
func (f *violations) limitRules(l *ruleWrite, writes []governed) {
	limits := f.limits
	if l == nil || limits == nil {
		return
	}
	unbounded := false
	for i := range writes {
		w := &writes[i]
		if w.operation == v1alpha1.TaintRemove {
			continue
		}
		// A taint that was on every device already may get a less severe effect.
		bounded := !l.every || l.everyBefore && l.stood(w.New, func(effect corev1.TaintEffect) bool { return !moreSevere(w.New.Effect, effect) })
		unbounded = unbounded || !bounded
		if !limits.RequirePreview || l.previewed(w.New) {
			continue
		}
		at := l.effect
		if at == "" {
			at = w.Path.String()
			if at != l.selector {
				at += ".effect"
			}
		}
		f.add(policy.Finding{
			Reason:  policy.PreviewRequired,
			Field:   at,
			Value:   w.New.String(),
			Problem: "evicts pods, and " + l.notPreviewed,
			Remedy:  "write it with effect None, read its status, then change the effect alone",
		})
	}
	if limits.RequireSelector && unbounded {
		f.add(policy.Finding{Reason: policy.SelectorRequired, Field: l.selector, Problem: l.problem, Remedy: l.remedy})
	}
}

// everyDevice reports whether a selector selects every device, which the empty one
// does. Nil selects none (C25).
func everyDevice(s *resourcev1.DeviceTaintSelector) bool {
	return s != nil && *s == resourcev1.DeviceTaintSelector{}
}

const effectNone = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)

// severities are the known effects of devices, ordered by what they do to pods.
var severities = []corev1.TaintEffect{effectNone, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}

// moreSevere reports whether an effect may do more to pods than the old one. An unknown effect
// is the most severe: scheduler and evictor ignore it, but those of a later version may not. An
// unknown old effect counts as None, because it does nothing to pods here: otherwise a rule could
// be created with an unknown effect and then changed to a known one without being judged. The
// same unknown effect is not more severe.
func moreSevere(effect, old corev1.TaintEffect) bool {
	severity, before := slices.Index(severities, effect), slices.Index(severities, old)
	if before < 0 {
		return effect != old && effect != effectNone
	}
	return severity < 0 || severity > before
}

func (c *RuleChange) sameSelector() bool {
	return !c.Reselected && equality.Semantic.DeepEqual(c.Old.DeviceSelector, c.New.DeviceSelector)
}

var patchFilterPath = field.NewPath("spec", "devices", "filter")

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
	d := diff{path: field.NewPath("spec", "devices", "taints"), old: ofPatch(c.Old), now: ofPatch(c.New)}
	writes := d.writes()
	if c.New != nil && c.Old != nil && !c.sameFilter() {
		for i, t := range d.now {
			if !slices.Contains(d.fresh, i) {
				writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: t, New: t, Path: patchFilterPath})
			}
		}
	}
	// A patch that names no driver may be for devices of every driver, whatever class and expressions
	// it asks for.
	was, is := ptr.Deref(filterOf(c.Old).Driver, ""), ptr.Deref(filterOf(c.New).Driver, "")
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

// ofPatch returns the taints of a patch without the driver.
func ofPatch(p *v1alpha1.DevicePatch) []Taint {
	if p == nil {
		return nil
	}
	return mapped(p.Taints, func(t *v1alpha1.PatchedTaint) Taint { return OfDevice("", new(resourcev1.DeviceTaint(*t))) })
}

func (c *PatchChange) sameFilter() bool {
	return equality.Semantic.DeepEqual(filterOf(c.Old), filterOf(c.New))
}

// filterOf returns the filter of a patch; an empty one where there is none.
func filterOf(p *v1alpha1.DevicePatch) v1alpha1.DevicePatchFilter {
	return ptr.Deref(ptr.Deref(p, v1alpha1.DevicePatch{}).Filter, v1alpha1.DevicePatchFilter{})
}

// every reports whether a patch is for every device.
func every(p *v1alpha1.DevicePatch) bool {
	return equality.Semantic.DeepEqual(filterOf(p), v1alpha1.DevicePatchFilter{})
}

// limited returns what limits on rules ask of the change; nil where the patch is deleted.
func (c *PatchChange) limited() *ruleWrite {
	if c == nil || c.New == nil {
		return nil
	}
	name := "the ResourceSlicePatch"
	if c.Name != "" {
		name = "ResourceSlicePatch " + policy.Short(c.Name, policy.MaxKeyLength)
	}
	l := &ruleWrite{
		every: every(c.New), selector: patchFilterPath.String(),
		problem:      "asks for nothing: " + name + " taints every device",
		remedy:       "ask for a class, a driver, a pool or a device, or for what an expression says",
		notPreviewed: name + " did not stand at effect None with this taint and filter before",
	}
	if c.Old != nil {
		l.old, l.everyBefore, l.same = ofPatch(c.Old), every(c.Old), c.sameFilter()
	}
	return l
}
