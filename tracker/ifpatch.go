package tracker

import (
	"cmp"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// PatchedTaints are the taints of a ResourceSlicePatch and the devices that it selects.
type PatchedTaints struct {
	// Patch is the patch. Its UID is empty for one that is being created.
	Patch PatchRef
	// Selectors select its devices. One that several of them select has the taints once.
	Selectors []device.Selector
	// Taints are those of its spec. One without a time keeps the time that rules of this
	// patch have for its key and effect; where there is none, it counts from now on.
	Taints []resourcev1.DeviceTaint
}

// IfPatch returns what would change if a patch had other taints, or selected other
// devices: in the view after, the rules that are written out for patches of its name are
// left out, whatever their UID, and each selected device has its taints, whose source is
// the patch. That the source differs from the rules of before is no change. It costs
// what the patch touches, before and after.
func (t *Tracker) IfPatch(p PatchedTaints, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	after := t.patchedView(&p, now)
	users := &podSet{repeated: true}
	for _, rule := range t.written[p.Patch.Name] {
		if rule.evicts() {
			t.eachAllocated(rule.Selector, users.addUsers)
		}
	}
	if len(evictingOnly(after.fresh)) > 0 {
		for _, selector := range p.Selectors {
			t.eachAllocated(selector, users.addUsers)
		}
	}
	return t.changes(users, t.actual(), &view{Tracker: t, patch: after})
}

// patchedView has the taints that the devices of a patch would have. It is never written to.
type patchedView struct {
	patch   PatchRef
	selects device.Index[struct{}]
	// fresh are the taints of a device that has none of the patch yet, standing those of
	// one that has.
	fresh, standing []Taint
}

func (t *Tracker) patchedView(p *PatchedTaints, now time.Time) *patchedView {
	v := &patchedView{patch: p.Patch}
	for _, selector := range p.Selectors {
		v.selects.Set(selector, "", struct{}{})
	}
	for _, spec := range p.Taints {
		taint := dated(spec, p.Patch.Source(), now)
		taint.Patch, taint.Changed = p.Patch, now
		// The taint that the rules of the patch have, the earliest of its key and effect.
		var before Taint
		stood := false
		for _, rule := range t.written[p.Patch.Name] {
			if known := rule.taint(); rule.Patch == p.Patch && known.Key == taint.Key && known.Effect == taint.Effect &&
				(!stood || compareTaints(known, before) < 0) {
				before, stood = known, true
			}
		}
		if stood && !taint.Stamped {
			taint.TimeAdded, taint.Stamped = before.TimeAdded, before.Stamped
		}
		v.fresh = append(v.fresh, taint)
		if stood {
			taint.Seen, taint.Witnessed = before.Seen, before.Witnessed
			if taint.Value == before.Value && !taint.TimeAdded.Before(before.TimeAdded) {
				taint.Changed = before.Changed
			}
		}
		v.standing = append(v.standing, taint)
	}
	return v
}

// compareTaints orders taints by time, then so that the order does not depend on maps.
func compareTaints(a, b Taint) int {
	return cmp.Or(a.TimeAdded.Compare(b.TimeAdded), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value),
		cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Source.Kind, b.Source.Kind), cmp.Compare(a.Source.Name, b.Source.Name))
}

// taints returns the taints of a device: those of its slice, those of the rules that
// are not written out for patches of that name, then those of the patch.
func (p *patchedView) taints(id device.ID, own []Taint, rules []device.Entry[*ruleState]) []Taint {
	var patched []Taint
	if len(p.selects.Match(id)) > 0 {
		patched = p.fresh
	}
	if len(own) == 0 && len(rules) == 0 {
		return patched
	}
	taints := make([]Taint, len(own), len(own)+len(rules)+len(patched))
	copy(taints, own)
	for _, rule := range rules {
		switch {
		case rule.Value.Patch == (PatchRef{}), rule.Value.Patch.Name != p.patch.Name:
			taints = append(taints, rule.Value.taint())
		case rule.Value.Patch == p.patch && len(patched) > 0:
			patched = p.standing
		}
	}
	return append(taints, patched...)
}

// sameAuthored compares the taints of a device of which one list has those of a patch from
// rules and the other from the patch.
func sameAuthored(a, b []Taint) bool {
	return len(a) == len(b) && slices.EqualFunc(authored(a), authored(b), sameEffect)
}

// authored returns taints with their authors as sources, in an order that does not depend
// on rules.
func authored(taints []Taint) []Taint {
	list := slices.Clone(taints)
	for i := range list {
		list[i].Source = list[i].Author()
	}
	slices.SortFunc(list, compareTaints)
	return list
}
