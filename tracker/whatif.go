package tracker

import (
	"maps"
	"slices"
	"time"
)

// Change is the change for a pod if an object were written.
type Change struct {
	Before, After Situation
}

// IfNodeWas returns what would change if a node that stands as old were written, by pod. Like
// the methods below, it changes nothing and costs what such a write would. The API server knows the
// stored node better than a watch, which may be behind.
func (t *Tracker) IfNodeWas(old, node Node, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, known := t.nodes[node.Name]
	source := Source{Kind: SourceNode, Name: node.Name}
	before := merge(old.Taints, state.taints, known, source, now)
	return t.changes(&podSet{pods: slices.Collect(maps.Keys(t.onNode[node.Name]))},
		&view{Tracker: t, node: node.Name, nodeTaints: before},
		&view{Tracker: t, node: node.Name, nodeTaints: merge(node.Taints, before, true, source, now)})
}

// IfRuleWas returns what would change if a DeviceTaintRule that stands as old, nil for
// none, were written. Both are taken for the rule that is known under that name.
func (t *Tracker) IfRuleWas(old *Rule, rule Rule, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	known := t.rules[rule.Name]
	if known != nil {
		rule.UID = known.UID
	}
	var before *ruleState
	if old != nil {
		was := *old
		was.UID = rule.UID
		before = newRuleState(was, known, now)
	}
	after := newRuleState(rule, before, now)
	return t.changes(t.usersOfRules(before, after),
		&view{Tracker: t, ruleName: rule.Name, rule: before}, &view{Tracker: t, ruleName: rule.Name, rule: after})
}

// IfSliceWas returns what would change if a ResourceSlice that stands as old were
// written. It costs more than such a write when the pool has many slices, which it copies the
// index of.
func (t *Tracker) IfSliceWas(old, slice Slice, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	id := slice.poolID()
	before := t.pools[id.Driver][id.Pool]
	if before == nil {
		before = newPool()
	}
	known := t.slices[slice.Name]
	if known != nil && known.poolID() != id {
		known = nil // the API does not let a slice move
	}
	if old.poolID() == id {
		old.seen = now
		before = before.clone()
		before.replace(known, &old)
		known = &old
	}
	slice.seen = now
	after := before.clone()
	users := &podSet{}
	for _, device := range after.replace(known, &slice) {
		t.addDevice(users, id.Device(device))
	}
	return t.changes(users,
		&view{Tracker: t, changedID: id, changed: before}, &view{Tracker: t, changedID: id, changed: after})
}

// changes returns what differs for pods between two views, sorted.
func (t *Tracker) changes(pods *podSet, before, after *view) []Change {
	concerned := pods.all()
	// The pods are sorted because their situations are large.
	slices.SortFunc(concerned, func(a, b *Pod) int { return CompareKeys(a.Key, b.Key) })
	same := func(a, b []Taint) bool { return slices.EqualFunc(a, b, sameEffect) }
	ofDevice := same
	if after.patch != nil {
		ofDevice = sameAuthored
	}
	var changes []Change
	for i, pod := range concerned {
		change := Change{Before: before.situation(pod), After: after.situation(pod)}
		if same(change.Before.Taints, change.After.Taints) &&
			slices.EqualFunc(change.Before.Devices, change.After.Devices, func(a, b TaintedDevice) bool {
				return a.ID == b.ID && a.Claim == b.Claim && ofDevice(a.Taints, b.Taints)
			}) {
			continue
		}
		if changes == nil {
			changes = make([]Change, 0, len(concerned)-i)
		}
		changes = append(changes, change)
	}
	return changes
}
