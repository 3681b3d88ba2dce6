package tracker

import (
	"maps"
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
// with an effect, by driver. It looks at each device, a pool at a time, so that no
// writer waits for all of it: the counts may be of slightly different moments.
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
	names := slices.Collect(maps.Keys(t.pools))
	for driver, pools := range t.allocated {
		for pool := range pools {
			if name := (poolName{driver: driver, pool: pool}); t.pools[name] == nil {
				names = append(names, name)
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
	published := map[string]struct{}{}
	if p := t.pools[name]; p != nil && (len(p.tainted) > 0 || len(t.rules) > 0) {
		for _, slice := range p.generations[p.newest] {
			for i := range slice.Devices {
				if _, twice := published[slice.Devices[i].Name]; !twice {
					published[slice.Devices[i].Name] = struct{}{}
					count(deviceIn(name, slice.Devices[i].Name))
				}
			}
		}
	}
	for dev := range t.allocated[name.driver][name.pool] {
		if _, twice := published[dev]; !twice {
			count(deviceIn(name, dev))
		}
	}
}
