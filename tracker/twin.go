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
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule && t.Key == taint.Key
		}) {
			twins = append(twins, taint.Key)
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
// their fate had changed. One that comes with a slice names no pod.
func (t *Tracker) Twin(source Source, taint Taint, id device.ID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if source.Kind == SourceNode {
		return slices.Contains(twinsOf(t.nodes[source.Name].Taints), taint.Key)
	}
	return t.devicesKnown && (slices.ContainsFunc(t.actual().published(id), func(twin Taint) bool {
		return twin.Effect == corev1.TaintEffectNoSchedule && twin.Key == taint.Key && twin.Value == taint.Value
	}) || slices.ContainsFunc(t.selecting.Match(id), func(rule device.Entry[*ruleState]) bool {
		return rule.Value.pairs() && rule.Value.Taint.Key == taint.Key && rule.Value.Taint.Value == taint.Value
	}))
}

// pairs reports whether the rule can be the twin of others; it may be nil. One that has
// the effect NoSchedule for the scheduler and another for Tollgate is its own twin.
func (r *ruleState) pairs() bool {
	return r != nil && r.Selects && r.NativeTaint().Effect == resourcev1.DeviceTaintEffectNoSchedule
}

// addTwinned adds the pods that may have waited for a rule that is a twin now.
func (t *Tracker) addTwinned(users *podSet, rule *ruleState) {
	waits := func(taint Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && taint.Key == rule.Taint.Key && taint.Value == rule.Taint.Value
	}
	t.eachAllocated(rule.Selector, func(state *claimState) {
		for _, d := range state.claim.Devices {
			if rule.Matches(d.ID) && slices.ContainsFunc(t.actual().taints(d.ID), waits) {
				users.repeated = true
				users.addUsers(state)
				return
			}
		}
	})
}
