package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// DriverEffect is what tainted devices are counted by.
type DriverEffect struct {
	Driver string
	Effect corev1.TaintEffect
}

// TaintedDevices returns how many devices, published or allocated, have a taint
// with an effect, by driver. It looks at the tainted devices of each pool, or at all
// if a rule selects any there, and at one pool at a time, so that no writer waits
// for all of it: the counts may be of slightly different moments.
func (t *Tracker) TaintedDevices() map[DriverEffect]int {
	counts := map[DriverEffect]int{}
	for _, pool := range t.poolIDs() {
		t.countPool(pool, counts)
	}
	return counts
}

// poolIDs returns the pools with devices that are published or allocated.
func (t *Tracker) poolIDs() []device.ID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []device.ID
	for id := range t.pools.Selected(device.Selector{}) {
		ids = append(ids, id)
	}
	for id := range t.allocated.Selected(device.Selector{}) {
		if t.pools[id.Driver][id.Pool] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *Tracker) countPool(pool device.ID, counts map[DriverEffect]int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v := view{Tracker: t}
	count := func(dev string) {
		var seen []corev1.TaintEffect
		for _, taint := range v.taints(deviceIn(pool, dev)) {
			if !slices.Contains(seen, taint.Effect) {
				seen = append(seen, taint.Effect)
				counts[DriverEffect{Driver: pool.Driver, Effect: taint.Effect}]++
			}
		}
	}
	p := t.pools[pool.Driver][pool.Pool]
	if t.selecting.ScopeOf(pool.Driver, pool.Pool).Empty() && !t.selecting.HasNamed(pool.Driver, pool.Pool) {
		if p != nil {
			for dev := range p.tainted {
				count(dev)
			}
		}
		return
	}
	devices := map[string]struct{}{}
	for _, d := range p.devices() {
		devices[d.Name] = struct{}{}
	}
	for dev := range t.allocated.Pools[pool.Driver][pool.Pool] {
		devices[dev] = struct{}{}
	}
	for dev := range devices {
		count(dev)
	}
}
