package tracker

import (
	"maps"
	"slices"
	"time"
)

// Change is what the writing of an object would change for a pod.
type Change struct {
	Before, After Situation
}

// IfNodeWas returns what would change if a node that stands as old were written, by pod. Like
// the methods below, it changes nothing and costs what such a write would. The API server knows the
// stored node better than a watch, which may be behind.
func (t *Tracker) IfNodeWas(old, node Node, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ifNode(&old, node, now)
}

func (t *Tracker) ifNode(old *Node, node Node, now time.Time) []Change {
	state, ok := t.nodes[node.Name]
	if !ok {
		return nil
	}
	source := Source{Kind: SourceNode, Name: node.Name}
	var prior []Taint
	known := state.known
	if known {
		prior = state.taints
	}
	if old != nil {
		prior, known = merge(old.Taints, prior, known, source, now), true
	}
	users := &podSet{pods: slices.Collect(maps.Keys(state.pods))}
	return t.changes(users,
		&view{Tracker: t, node: node.Name, nodeTaints: prior},
		&view{Tracker: t, node: node.Name, nodeTaints: merge(node.Taints, prior, known, source, now)})
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
	if old == nil {
		return t.ifRule(nil, rule, now)
	}
	was := *old
	was.UID = rule.UID
	return t.ifRule(newRuleState(was, known, now), rule, now)
}

func (t *Tracker) ifRule(old *ruleState, rule Rule, now time.Time) []Change {
	state := newRuleState(rule, old, now)
	return t.changes(t.usersOfRules(old, state),
		&view{Tracker: t, ruleName: rule.Name, rule: old}, &view{Tracker: t, ruleName: rule.Name, rule: state})
}

// IfSliceWas returns what would change if a ResourceSlice that stands as old were
// written. It costs more than such a write when the pool has many slices, which it copies the
// index of.
func (t *Tracker) IfSliceWas(old, slice Slice, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ifSlice(&old, slice, now)
}

func (t *Tracker) ifSlice(old *Slice, slice Slice, now time.Time) []Change {
	id := slice.poolID()
	before := t.pools[id.Driver][id.Pool]
	if before == nil {
		before = newPool()
	}
	known := t.slices[slice.Name]
	if known != nil && known.poolID() != id {
		known = nil // the API does not let a slice move
	}
	if old != nil && old.poolID() == id {
		was := *old
		was.seen = now
		before = before.clone()
		before.replace(known, &was)
		known = &was
	}
	slice.seen = now
	after := before.clone()
	users := &podSet{}
	for _, device := range after.replace(known, &slice) {
		t.addDevice(users, deviceIn(id, device))
	}
	return t.changes(users,
		&view{Tracker: t, changedID: id, changed: before}, &view{Tracker: t, changedID: id, changed: after})
}

// changes returns what differs for pods between two views, sorted.
func (t *Tracker) changes(pods *podSet, before, after *view) []Change {
	concerned := pods.all()
	// The pods are sorted because their situations are large.
	slices.SortFunc(concerned, func(a, b *Pod) int { return CompareKeys(a.Key, b.Key) })
	same := sameSituation
	if after.patch != nil {
		same = sameAuthored
	}
	var changes []Change
	for i, pod := range concerned {
		change := Change{Before: before.situation(pod), After: after.situation(pod)}
		if same(&change.Before, &change.After) {
			continue
		}
		if changes == nil {
			changes = make([]Change, 0, len(concerned)-i)
		}
		changes = append(changes, change)
	}
	return changes
}

// sameSituation compares two situations of one pod.
func sameSituation(a, b *Situation) bool {
	return sameBut(a, b, func(x, y []Taint) bool { return slices.EqualFunc(x, y, sameEffect) })
}

// sameBut compares two situations of one pod, the taints of devices as same does.
func sameBut(a, b *Situation, same func(x, y []Taint) bool) bool {
	return slices.EqualFunc(a.Taints, b.Taints, sameEffect) &&
		slices.EqualFunc(a.Devices, b.Devices, func(x, y TaintedDevice) bool {
			return x.ID == y.ID && x.Claim == y.Claim && same(x.Taints, y.Taints)
		})
}
