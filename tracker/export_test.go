package tracker

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// IfNode returns what would change if a node were written, by pod.
func (t *Tracker) IfNode(node Node, now time.Time) []Change {
	var known Node
	t.read(func() { known = t.nodes[node.Name].Node })
	return t.IfNodeWas(known, node, now)
}

// IfRule returns what would change if a DeviceTaintRule were written.
func (t *Tracker) IfRule(rule Rule, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	before := t.rules[rule.Name]
	after := newRuleState(rule, before, now)
	return t.changes(t.usersOfRules(before, after),
		&view{Tracker: t, ruleName: rule.Name, rule: before}, &view{Tracker: t, ruleName: rule.Name, rule: after})
}

// IfRuleDeleted returns what would change if a rule were deleted.
func (t *Tracker) IfRuleDeleted(name string) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changes(t.usersOfRules(t.rules[name], nil), &view{Tracker: t}, &view{Tracker: t, ruleName: name})
}

// IfSlice returns what would change if a ResourceSlice were written. It costs more
// than such a write when the pool has many slices, which it copies the index of.
func (t *Tracker) IfSlice(slice Slice, now time.Time) []Change {
	return t.IfSliceWas(Slice{}, slice, now)
}

// IfPatchDeleted returns what would change if the patches of a name had no taints.
func (t *Tracker) IfPatchDeleted(name string) []Change {
	return t.IfPatch(PatchedTaints{Patch: PatchRef{Name: name}}, time.Time{})
}

// NodeTwin reports whether a node has a taint of a key with effect NoExecute and its twin.
func (t *Tracker) NodeTwin(node, key string) bool {
	return t.Twin(Source{Kind: SourceNode, Name: node}, Taint{Key: key}, device.ID{})
}

// DeviceTwin reports whether a device has a taint with effect NoSchedule, as the scheduler
// sees it.
func (t *Tracker) DeviceTwin(id device.ID, key, value string) bool {
	return t.Twin(Source{Kind: SourceRule}, Taint{Key: key, Value: value}, id)
}

// RefreshClaim records a claim that the API server returned to a request of our own.
// Like RefreshPod, it changes nothing unless that very claim is known.
func (t *Tracker) RefreshClaim(claim Claim) []Key {
	var known bool
	t.read(func() {
		state, ok := t.claims[claim.ClaimName]
		known = ok && state.claim != nil && state.claim.UID == claim.UID
	})
	if !known {
		return nil
	}
	return t.SetClaim(claim)
}
