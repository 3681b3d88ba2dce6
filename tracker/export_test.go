package tracker

import "time"

// IfNode returns what would change if a node were written, by pod.
func (t *Tracker) IfNode(node Node, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ifNode(nil, node, now)
}

// IfRule returns what would change if a DeviceTaintRule were written.
func (t *Tracker) IfRule(rule Rule, now time.Time) []Change {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ifRule(t.rules[rule.Name], rule, now)
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
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ifSlice(nil, slice, now)
}

// IfPatchDeleted returns what would change if the patches of a name had no taints.
func (t *Tracker) IfPatchDeleted(name string) []Change {
	return t.IfPatch(PatchedTaints{Patch: PatchRef{Name: name}}, time.Time{})
}

// RefreshClaim records a claim that the API server returned to a request of our own.
// Like RefreshPod, it changes nothing unless that very claim is known.
func (t *Tracker) RefreshClaim(claim Claim) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, ok := t.claims[claim.ClaimName]
	if !ok || state.claim == nil || state.claim.UID != claim.UID {
		return nil
	}
	return t.setClaim(state, claim)
}
