package tracker

import (
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ruleState is a rule and its taint, dated. It is replaced, never written to.
type ruleState struct {
	Rule
	// taints holds the one taint of the rule.
	taints []Taint
}

func (r *ruleState) taint() Taint { return r.taints[0] }

func newRuleState(rule Rule, old *ruleState, now time.Time) *ruleState {
	taint := dated(rule.Taint, Source{Kind: SourceRule, Name: rule.Name, UID: rule.UID}, now)
	taint.Patch, taint.Changed = rule.Patch, rule.Created
	if old != nil && old.UID == rule.UID {
		before := old.taint()
		taint.Witnessed = true
		// A new key or value leaves the time as it was (DE-37), and so also since when the
		// taint is known. A new time does not make it new either: a user who moves it ahead
		// again and again would hold an eviction for ever.
		if taint.Effect == before.Effect {
			taint.Seen, taint.Witnessed = before.Seen, before.Witnessed
			if !taint.Stamped {
				taint.TimeAdded = before.Seen
			}
		}
		taint.Changed = before.Changed
		if taint.Key != before.Key || taint.Value != before.Value || taint.Effect != before.Effect ||
			taint.TimeAdded.Before(before.TimeAdded) || rule.Selects != old.Selects || rule.Selector != old.Selector || rule.Patch != old.Patch {
			taint.Changed = now
		}
	}
	return &ruleState{Rule: rule, taints: []Taint{taint}}
}

// evicts reports whether the rule can evict; it may be nil.
func (r *ruleState) evicts() bool {
	return r != nil && r.Selects && r.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// SetRule records a DeviceTaintRule as it was seen at now.
func (t *Tracker) SetRule(rule Rule, now time.Time) []Key {
	return t.setRule(rule, nil, now)
}

// RefreshRule records a rule that the API server returned to a request of our own.
// Like RefreshNode, it changes nothing unless that very rule is known.
func (t *Tracker) RefreshRule(rule Rule, before string, now time.Time) []Key {
	return t.setRule(rule, &before, now)
}

// setRule records a rule, see overtaken for before.
func (t *Tracker) setRule(rule Rule, before *string, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overtaken(SourceRule, rule.Identity(), before) {
		return nil
	}
	old := t.rules[rule.Name]
	state := newRuleState(rule, old, now)
	t.unselect(old)
	t.rules[rule.Name] = state
	if rule.Selects {
		t.selecting.Set(rule.Selector, rule.Name, state)
	}
	if rule.Patch != (PatchRef{}) {
		t.written.Set(rule.Patch.Name, rule.Name, state)
	}
	users := t.usersOfRules(old, state)
	if state.pairs() && (!old.pairs() || old.Selector != state.Selector || !sameEffect(old.taint(), state.taint())) {
		t.addTwinned(users, state)
	}
	return users.keys()
}

// DeleteRule forgets the rule of that name and UID; one that was created anew since
// stays.
func (t *Tracker) DeleteRule(name string, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.rules[name]
	if old == nil || old.UID != uid {
		return nil
	}
	t.unselect(old)
	delete(t.rules, name)
	return t.usersOfRules(old, nil).keys()
}

// Rules returns the names of all rules, sorted.
func (t *Tracker) Rules() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.rules))
}

// Rule returns a rule.
func (t *Tracker) Rule(name string) (Rule, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.rules[name]
	if !ok {
		return Rule{}, false
	}
	return state.Rule, true
}

// RuleTaint returns the taint of a rule, dated, whatever it selects.
func (t *Tracker) RuleTaint(name string) (Taint, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.rules[name]
	if !ok {
		return Taint{}, false
	}
	return state.taint(), true
}

// unselect takes a rule, nil for none, out of the indexes of rules.
func (t *Tracker) unselect(rule *ruleState) {
	if rule == nil {
		return
	}
	if rule.Selects {
		t.selecting.Delete(rule.Selector, rule.Name)
	}
	t.written.Delete(rule.Patch.Name, rule.Name)
}

// usersOfRules returns the pods whose fate may differ between one rule and the
// other, either of them nil for none.
func (t *Tracker) usersOfRules(old, rule *ruleState) *podSet {
	both := old.evicts() && rule.evicts()
	alike := both && old.Selector == rule.Selector
	users := &podSet{repeated: both && !alike}
	if alike && sameEffect(old.taint(), rule.taint()) {
		return users
	}
	if old.evicts() {
		t.eachAllocated(old.Selector, users.addUsers)
	}
	if rule.evicts() && !alike {
		t.eachAllocated(rule.Selector, users.addUsers)
	}
	return users
}
