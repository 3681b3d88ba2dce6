package tracker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// ExposedSince returns the situations of the pods for which a NoExecute taint holds
// that appeared at since or later, in no order. It costs what such taints touch, and a
// look at each node, rule and tainted device.
func (t *Tracker) ExposedSince(since time.Time) []Situation {
	t.mu.RLock()
	defer t.mu.RUnlock()
	recent := func(taint Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !taint.Appeared().Before(since)
	}
	v := view{Tracker: t}
	pods := t.onTaints(recent).all()
	situations := make([]Situation, 0, len(pods))
	for _, pod := range pods {
		situations = append(situations, v.situation(pod))
	}
	return situations
}

// onTaints returns the pods on nodes that have a wanted taint and those that refer to
// claims with devices that have one.
func (t *Tracker) onTaints(wanted func(Taint) bool) *podSet {
	users := &podSet{repeated: true}
	for _, node := range t.nodes {
		if slices.ContainsFunc(node.taints, wanted) {
			for pod := range node.pods {
				users.pods = append(users.pods, pod)
			}
		}
	}
	if t.devicesKnown {
		t.addDevices(users, wanted)
	}
	return users
}

// addDevices adds the pods that refer to claims with devices that have a wanted
// taint.
func (t *Tracker) addDevices(users *podSet, wanted func(Taint) bool) {
	for _, rule := range t.rules {
		if rule.evicts() && wanted(rule.taint()) {
			t.allocated.each(rule.Selector, users.addUsers)
		}
	}
	for id, p := range t.pools.Selected(device.Selector{}) {
		for name, taints := range p.tainted {
			if slices.ContainsFunc(taints, wanted) {
				t.addDevice(users, deviceIn(id, name))
			}
		}
	}
}
