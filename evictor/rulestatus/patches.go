package rulestatus

import (
	"maps"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Patches presents each ResourceSlicePatch with taints to a controller as one rule, which
// selects the devices of the rules that are written for it. Its effect is NoExecute if any
// taint of the patch has that, else None if any has. Every replica calls its methods for
// patches and for the names of rules. It is goroutine-safe.
type Patches struct {
	tracker *tracker.Tracker
	forget  func(types.UID)

	mu sync.Mutex
	// patches are the patches as rules, by name.
	patches map[string]tracker.Rule
	// written are the patches by the names of the rules that are written for them; a deleted
	// rule has no other record of its patch.
	written map[string]tracker.PatchRef
}

// NewPatches returns a list of no patches. The tracker has the rules of patches. Forget is
// that of Options.
func NewPatches(t *tracker.Tracker, forget func(types.UID)) *Patches {
	return &Patches{tracker: t, forget: forget, patches: map[string]tracker.Rule{}, written: map[string]tracker.PatchRef{}}
}

// SetPatch records a patch, unless a later version of it is recorded. The caller then adds
// its name to the controller, as after DeletePatch.
func (p *Patches) SetPatch(patch *v1alpha1.ResourceSlicePatch) {
	rule, ok := ruleOfPatch(patch)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch known := p.patches[patch.Name]; {
	case known.UID == patch.UID && tracker.Older(patch.ResourceVersion, known.ResourceVersion):
	case ok:
		p.patches[patch.Name] = rule
	default:
		delete(p.patches, patch.Name)
	}
}

// DeletePatch removes the patch with that name and UID; a recreated one stays.
func (p *Patches) DeletePatch(name string, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.patches[name].UID == uid {
		delete(p.patches, name)
	}
}

// RuleChanged records that a DeviceTaintRule was created, changed or deleted, after the
// tracker has, and returns the names of the patches that this concerns. The count of a
// patch is dropped with the last of its rules, unless the patch exists.
func (p *Patches) RuleChanged(name string) []string {
	rule, _ := p.tracker.Rule(name)
	var none tracker.PatchRef
	p.mu.Lock()
	before := p.written[name]
	if rule.Patch == none {
		delete(p.written, name)
	} else {
		p.written[name] = rule.Patch
	}
	exists := p.patches[before.Name].UID == before.UID
	p.mu.Unlock()
	if !exists && before != rule.Patch && p.tracker.UIDOf(before.Source()) == "" {
		p.forget(before.UID)
	}
	patches := slices.DeleteFunc([]string{before.Name, rule.Patch.Name}, func(patch string) bool { return patch == "" })
	return slices.Compact(patches)
}

// Rules implements ruleTracker: it returns the names of the patches, sorted.
func (p *Patches) Rules() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.patches))
}

// Rule implements ruleTracker.
func (p *Patches) Rule(name string) (tracker.Rule, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rule, ok := p.patches[name]
	return rule, ok
}

// Impact implements ruleTracker.
func (p *Patches) Impact(name string) (tracker.Impact, bool) {
	rule, ok := p.Rule(name)
	if !ok {
		return tracker.Impact{}, false
	}
	impact, ok := p.tracker.PatchImpact(tracker.PatchRef{Name: rule.Name, UID: rule.UID}, rule.Taint.Effect)
	impact.Rule = rule
	return impact, ok
}

// RefreshRule implements ruleTracker. It changes nothing unless that patch is recorded, and
// concerns no pods.
func (p *Patches) RefreshRule(rule tracker.Rule, _ string, _ time.Time) []tracker.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.patches[rule.Name]; known.UID == rule.UID && !tracker.Older(rule.ResourceVersion, known.ResourceVersion) {
		p.patches[rule.Name] = rule
	}
	return nil
}

// ruleOfPatch returns a patch as a rule; false for a patch without taints and without
// conditions about earlier taints, which gets no conditions.
func ruleOfPatch(patch *v1alpha1.ResourceSlicePatch) (tracker.Rule, bool) {
	taints := patch.Spec.Devices.Taints
	rule := tracker.Rule{
		Name: patch.Name, UID: patch.UID, ResourceVersion: patch.ResourceVersion, Generation: patch.Generation,
		Created: patch.CreationTimestamp.Time, Selects: len(taints) > 0, Taint: resourcev1.DeviceTaint{Effect: effectOf(taints)},
		Conditions: patch.Status.Conditions,
	}
	return rule, rule.Selects || slices.ContainsFunc(
		[]string{evictionInProgress, ConditionEvictionPreview, ConditionEvictionHeld},
		func(kind string) bool { return storedCondition(&rule, kind) != nil },
	)
}

// effectOf returns the strongest effect of a patch with taints, as far as pods are
// concerned.
func effectOf(taints []v1alpha1.PatchedTaint) resourcev1.DeviceTaintEffect {
	for _, effect := range []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNone} {
		if slices.ContainsFunc(taints, func(t v1alpha1.PatchedTaint) bool { return t.Effect == effect }) {
			return effect
		}
	}
	return resourcev1.DeviceTaintEffectNoSchedule
}
