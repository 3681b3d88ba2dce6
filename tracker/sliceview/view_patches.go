package sliceview

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// SetPatch takes in a patch that is new or may have changed.
func (v *View) SetPatch(set *v1alpha1.ResourceSlicePatch) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	was := v.patches.byName[set.Name]
	if was != nil && sameObject(was.object, set) {
		return
	}
	next := v.patches.compile(set, was)
	v.patches.set(next)
	v.recountRules(was)
	v.recountRules(next)
	v.retire(was, next)
	if next.patch != nil && (was == nil || was.patch == nil || was.selector != next.selector) {
		v.touch(next.selector, true)
	}
}

// DeletePatch takes out the patch with that name.
func (v *View) DeletePatch(name string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	was := v.patches.byName[name]
	v.patches.remove(name)
	v.recountRules(was)
	v.retire(was, nil)
}

// recountRules silences the rules that were written out for a patch which came into
// force, and lets those speak whose patch went, in the step in which the patch comes or
// goes. The lock is held.
func (v *View) recountRules(p *slicePatch) {
	if p == nil {
		return
	}
	silent := v.patches.inForce(p.object.UID)
	for _, name := range slices.Collect(maps.Keys(v.rules.writtenFor[p.object.UID])) {
		was := v.rules.byName[name]
		if was.silent == silent {
			return // All of them are as they should be.
		}
		next := was
		next.silent = silent
		v.replaceRule(name, was, next)
	}
}

// SetClass takes in a class that is new or may have changed.
func (v *View) SetClass(set *resourcev1.DeviceClass) {
	v.changeClass(set.Name, set)
}

// DeleteClass takes out the class with that name.
func (v *View) DeleteClass(name string) {
	v.changeClass(name, nil)
}

// changeClass takes in a class, nil for none, and asks anew for all patches that name it.
func (v *View) changeClass(name string, set *resourcev1.DeviceClass) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if !v.patches.setClass(name, set) {
		return
	}
	for _, was := range slices.Collect(maps.Values(v.patches.byName)) {
		if was.patch == nil || was.patch.Filter.Class != name {
			continue
		}
		next := *was
		next.question = v.patches.question(was.patch)
		v.patches.set(&next)
		v.retire(was, &next)
	}
}

// retire says that the slices of a patch that was replaced, by another one or by
// nothing, have to be patched anew. The lock is held.
func (v *View) retire(was, next *slicePatch) {
	if was == nil || was.patch == nil {
		return
	}
	if was.question != nil && (next == nil || next.question != was.question) {
		for e := range v.slices.selected(was.selector) {
			if delete(e.verdicts, was.question); len(e.verdicts) == 0 {
				e.verdicts = nil
			}
		}
	}
	v.touch(was.selector, true)
}

// patch returns the patched slice of an entry. The lock is held.
func (v *View) patch(e *entry) *resourcev1.ResourceSlice {
	if e.patched == nil {
		e.patched, e.limits = v.patches.apply(e)
		e.devices = nil
	}
	return e.patched
}
