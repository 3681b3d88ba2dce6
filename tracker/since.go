package tracker

import (
	"maps"
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
	users := &podSet{repeated: true}
	for name, node := range t.nodes {
		if slices.ContainsFunc(node.taints, recent) {
			users.pods = slices.AppendSeq(users.pods, maps.Keys(t.onNode[name]))
		}
	}
	if t.devicesKnown {
		for _, rule := range t.rules {
			if rule.evicts() && recent(rule.taint()) {
				t.eachAllocated(rule.Selector, users.addUsers)
			}
		}
		for id, p := range device.Selected(t.pools, device.Selector{}) {
			for name, taints := range p.tainted {
				if slices.ContainsFunc(taints, recent) {
					t.addDevice(users, id.Device(name))
				}
			}
		}
	}
	pods := users.all()
	situations := make([]Situation, 0, len(pods))
	for _, pod := range pods {
		situations = append(situations, t.actual().situation(pod))
	}
	return situations
}
