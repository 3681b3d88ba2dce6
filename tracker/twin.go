package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// twinsOf returns the keys under which a node has both a taint with effect NoExecute and
// its twin, in the order of the taints; nil for none, as is usual. The twin has the
// effect NoSchedule: it keeps pods from coming back to where others are about to leave.
// Any value will do: a node has one taint of a key and effect, so where one with another
// value stands no second one can be put beside it.
func twinsOf(taints []corev1.Taint) []string {
	var twins []string
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule && t.Key == taints[i].Key
		}) {
			twins = append(twins, taints[i].Key)
		}
	}
	return twins
}

// Twin reports whether the twin of a taint stands, which has the effect NoSchedule: the
// same key, with any value, on the node that is the source of the taint, or the same key
// and value on the device that the taint holds for, whatever tainted that one. The device
// does not matter for a taint of a node. As long as devices are not known there is no
// twin of theirs.
//
// When a twin comes to a node or with a rule, the pods that it concerns are named as if
// their fate had changed. One that comes with a slice names nobody.
func (t *Tracker) Twin(source Source, taint Taint, id device.ID) bool {
	if source.Kind == SourceNode {
		return t.NodeTwin(source.Name, taint.Key)
	}
	return t.DeviceTwin(id, taint.Key, taint.Value)
}

// NodeTwin reports whether a node has a taint of a key with effect NoExecute and its
// twin.
func (t *Tracker) NodeTwin(node, key string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[node]
	return ok && slices.Contains(twinsOf(state.Taints), key)
}

// DeviceTwin reports whether a device has a taint with effect NoSchedule, as the
// scheduler sees it.
func (t *Tracker) DeviceTwin(id device.ID, key, value string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.devicesKnown {
		return false
	}
	v := view{Tracker: t}
	return slices.ContainsFunc(v.published(id), func(taint Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule && taint.Key == key && taint.Value == value
	}) || slices.ContainsFunc(t.selecting.Match(id), func(rule device.Entry[*ruleState]) bool {
		return rule.Value.pairs() && rule.Value.Taint.Key == key && rule.Value.Taint.Value == value
	})
}

// pairs reports whether the rule can be the twin of others; it may be nil. One that has
// the effect NoSchedule for the scheduler and another for Tollgate is its own twin.
func (r *ruleState) pairs() bool {
	return r != nil && r.Selects && r.NativeTaint().Effect == resourcev1.DeviceTaintEffectNoSchedule
}

// addTwinned adds the pods that may have waited for a rule that is a twin now.
func (t *Tracker) addTwinned(users *podSet, rule *ruleState) {
	v := view{Tracker: t}
	waits := func(taint Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && taint.Key == rule.Taint.Key && taint.Value == rule.Taint.Value
	}
	t.allocated.each(rule.Selector, func(state *claimState) {
		for i := range state.claim.Devices {
			if id := state.claim.Devices[i].ID; rule.Matches(id) && slices.ContainsFunc(v.taints(id), waits) {
				users.repeated = true
				users.addUsers(state)
				return
			}
		}
	})
}
