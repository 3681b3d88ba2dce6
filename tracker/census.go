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
	for _, name := range t.poolNames() {
		t.countPool(name, counts)
	}
	return counts
}

// poolNames returns the pools with devices that are published or allocated.
func (t *Tracker) poolNames() []poolName {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []poolName
	for driver, pools := range t.pools {
		for pool := range pools {
			names = append(names, poolName{driver: driver, pool: pool})
		}
	}
	for driver, pools := range t.allocated {
		for pool := range pools {
			if t.pools[driver][pool] == nil {
				names = append(names, poolName{driver: driver, pool: pool})
			}
		}
	}
	return names
}

func (t *Tracker) countPool(name poolName, counts map[DriverEffect]int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v := view{Tracker: t}
	count := func(id device.ID) {
		var seen []corev1.TaintEffect
		for _, taint := range v.taints(id) {
			if !slices.Contains(seen, taint.Effect) {
				seen = append(seen, taint.Effect)
				counts[DriverEffect{Driver: name.driver, Effect: taint.Effect}]++
			}
		}
	}
	p := t.pools[name.driver][name.pool]
	if t.selecting.ScopeOf(name.driver, name.pool).Empty() && !t.selecting.HasNamed(name.driver, name.pool) {
		if p != nil {
			for dev := range p.tainted {
				count(deviceIn(name, dev))
			}
		}
		return
	}
	seen := map[string]struct{}{}
	once := func(dev string) {
		if _, twice := seen[dev]; !twice {
			seen[dev] = struct{}{}
			count(deviceIn(name, dev))
		}
	}
	if p != nil {
		for _, slice := range p.generations[p.newest] {
			for i := range slice.Devices {
				once(slice.Devices[i].Name)
			}
		}
	}
	for dev := range t.allocated[name.driver][name.pool] {
		once(dev)
	}
}
