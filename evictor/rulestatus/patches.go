package rulestatus

import (
	"maps"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// patchTracker is what is asked of a tracker.Tracker about the rules of patches.
type patchTracker interface {
	Rule(name string) (tracker.Rule, bool)
	PatchImpact(patch tracker.PatchRef, effect resourcev1.DeviceTaintEffect) (tracker.Impact, bool)
	UIDOf(source tracker.Source) types.UID
}

// Patches has a controller take each ResourceSlicePatch with taints for one rule, which
// selects what the rules do that are written out for it. Its effect is NoExecute if any
// taint of the patch has that, else None if any has. It is fed with patches and with the
// names of rules, by every replica, and is goroutine-safe.
type Patches struct {
	tracker patchTracker
	forget  func(types.UID)

	mu sync.Mutex
	// patches are the patches as rules, by name.
	patches map[string]tracker.Rule
	// written says for which patch each of their rules is written out, by the name of the
	// rule: one that is deleted is to be told of.
	written map[string]tracker.PatchRef
}

// NewPatches returns a list of no patches. The rules of patches are known to t, which is a
// tracker.Tracker. Forget lets go of what was counted for a patch, as that of Options.
func NewPatches(t patchTracker, forget func(types.UID)) *Patches {
	return &Patches{tracker: t, forget: forget, patches: map[string]tracker.Rule{}, written: map[string]tracker.PatchRef{}}
}

// SetPatch records a patch, unless a later version of it is known. The controller is to be
// told of its name after that, as after DeletePatch.
func (p *Patches) SetPatch(patch *v1alpha1.ResourceSlicePatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.patches[patch.Name]
	if ok && known.UID == patch.UID && older(patch.ResourceVersion, known.ResourceVersion) {
		return
	}
	if rule, ok := ruleOfPatch(patch); ok {
		p.patches[patch.Name] = rule
	} else {
		delete(p.patches, patch.Name)
	}
}

// DeletePatch forgets the patch of that name and UID; one that was created anew since
// stays.
func (p *Patches) DeletePatch(name string, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.patches[name]; ok && known.UID == uid {
		delete(p.patches, name)
	}
}

// RuleChanged takes in that a DeviceTaintRule was created, changed or deleted, after the
// tracker has, and returns the names of the patches that this concerns. What was counted
// for a patch goes with the last of its rules, unless the patch is still there.
func (p *Patches) RuleChanged(name string) []string {
	rule, _ := p.tracker.Rule(name)
	before, known := p.rewritten(name, rule.Patch)
	var concerned []string
	for _, patch := range slices.Compact([]tracker.PatchRef{before, rule.Patch}) {
		if patch != (tracker.PatchRef{}) {
			concerned = append(concerned, patch.Name)
		}
	}
	if before != rule.Patch && before != (tracker.PatchRef{}) && !known && p.tracker.UIDOf(before.Source()) == "" {
		p.forget(before.UID)
	}
	return slices.Compact(concerned)
}

// rewritten records for which patch a rule is written out now, and returns for which it was
// before and whether that one is known.
func (p *Patches) rewritten(rule string, patch tracker.PatchRef) (before tracker.PatchRef, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.written[rule]
	if patch == (tracker.PatchRef{}) {
		delete(p.written, rule)
	} else {
		p.written[rule] = patch
	}
	of, ok := p.patches[before.Name]
	return before, ok && of.UID == before.UID
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

// RefreshRule implements ruleTracker. It changes nothing unless that very patch is known,
// and nothing for pods.
func (p *Patches) RefreshRule(rule tracker.Rule, _ string, _ time.Time) []tracker.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.patches[rule.Name]
	if ok && known.UID == rule.UID && !older(rule.ResourceVersion, known.ResourceVersion) {
		p.patches[rule.Name] = rule
	}
	return nil
}

// older reports whether a is surely a version before b, as the tracker does.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// ruleOfPatch returns a patch as a rule; false for one that nothing is said about, because
// it has no taints and no condition from when it had.
func ruleOfPatch(patch *v1alpha1.ResourceSlicePatch) (tracker.Rule, bool) {
	taints, conditions := patch.Spec.Devices.Taints, patch.Status.Conditions
	rule := tracker.Rule{
		Name: patch.Name, UID: patch.UID, ResourceVersion: patch.ResourceVersion, Generation: patch.Generation,
		Created: patch.CreationTimestamp.Time, Selects: len(taints) > 0, Taint: resourcev1.DeviceTaint{Effect: effectOf(taints)},
		Conditions: conditions,
	}
	return rule, len(taints) > 0 || slices.ContainsFunc(
		[]string{resourcev1.DeviceTaintConditionEvictionInProgress, ConditionEvictionPreview, ConditionEvictionHeld},
		func(kind string) bool { return meta.FindStatusCondition(conditions, kind) != nil },
	)
}

// effectOf returns the effect of a patch with taints: that which says most about pods.
func effectOf(taints []v1alpha1.PatchedTaint) resourcev1.DeviceTaintEffect {
	for _, effect := range []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNone} {
		if slices.ContainsFunc(taints, func(t v1alpha1.PatchedTaint) bool { return t.Effect == effect }) {
			return effect
		}
	}
	return resourcev1.DeviceTaintEffectNoSchedule
}
