package tracker

import (
	"maps"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Change is what the writing of an object would change for a pod.
type Change struct {
	Before, After Situation
}

// IfNode returns what would change if a node were written, by pod. Like the methods
// below, it changes nothing and costs what such a write would.
func (t *Tracker) IfNode(node Node, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[node.Name]
	if !ok {
		return nil
	}
	var prior []Taint
	if state.known {
		prior = state.taints
	}
	users := &podSet{pods: slices.Collect(maps.Keys(state.pods))}
	source := Source{Kind: SourceNode, Name: node.Name}
	return t.changes(users, &view{
		Tracker: t, node: node.Name,
		nodeTaints: merge(node.Taints, prior, state.known, source, now),
	})
}

// IfRule returns what would change if a DeviceTaintRule were written.
func (t *Tracker) IfRule(rule Rule, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	old := t.rules[rule.Name]
	state := newRuleState(rule, old, now)
	return t.changes(t.usersOfRules(old, state), &view{Tracker: t, ruleName: rule.Name, rule: state})
}

// IfRuleDeleted returns what would change if a rule were deleted.
func (t *Tracker) IfRuleDeleted(name string) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changes(t.usersOfRules(t.rules[name], nil), &view{Tracker: t, ruleName: name})
}

// IfSlice returns what would change if a ResourceSlice were written. It costs more
// than such a write when the pool has many slices, which it copies the index of.
func (t *Tracker) IfSlice(slice Slice, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	slice.seen = now
	name := slice.poolName()
	changed := newPool()
	if p, ok := t.pools[name.driver][name.pool]; ok {
		changed = p.clone()
	}
	old := t.slices[slice.Name]
	if old != nil && old.poolName() != name {
		old = nil // the API does not let a slice move
	}
	users := &podSet{}
	for _, device := range changed.replace(old, &slice) {
		t.addDevice(users, deviceIn(name, device))
	}
	return t.changes(users, &view{Tracker: t, changedName: name, changed: changed})
}

func deviceIn(name poolName, dev string) device.ID {
	return device.ID{Driver: name.driver, Pool: name.pool, Name: dev}
}

// changes returns what differs for pods between what is known and after, sorted.
func (t *Tracker) changes(pods *podSet, after *view) []Change {
	now := view{Tracker: t}
	var changes []Change
	for _, pod := range pods.all() {
		change := Change{Before: now.situation(pod), After: after.situation(pod)}
		if !sameSituation(change.Before, change.After) {
			changes = append(changes, change)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return compareKeys(a.Before.Pod.Key, b.Before.Pod.Key) })
	return changes
}

// sameSituation compares two situations of one pod.
func sameSituation(a, b Situation) bool {
	return slices.EqualFunc(a.Taints, b.Taints, sameEffect) &&
		slices.EqualFunc(a.Devices, b.Devices, func(x, y TaintedDevice) bool {
			return x.ID == y.ID && x.Claim == y.Claim && slices.EqualFunc(x.Taints, y.Taints, sameEffect)
		})
}
