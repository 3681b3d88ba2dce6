package tracker

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// DriverEffect is the key by which tainted devices are counted.
type DriverEffect struct {
	Driver string
	Effect corev1.TaintEffect
}

// TaintedDevices returns how many devices, published or allocated, have a taint
// with an effect, by driver. It looks at the tainted devices of each pool, or at all
// if a rule selects any there, and takes the lock for each pool anew: the counts may be
// of slightly different moments.
func (t *Tracker) TaintedDevices() map[DriverEffect]int {
	counts := map[DriverEffect]int{}
	for _, id := range t.poolIDs() {
		t.inPool(id, func(p *pool) {
			devices := sets.New[string]()
			names := maps.Keys(devices)
			if !t.selecting.ScopeOf(id).Empty() || t.selecting.HasNamed(id) {
				for _, d := range p.devices() {
					devices.Insert(d.Name)
				}
				for name := range t.allocated[id.Driver][id.Pool] {
					devices.Insert(name)
				}
			} else if p != nil {
				names = maps.Keys(p.tainted)
			}
			for name := range names {
				var seen []corev1.TaintEffect
				for _, taint := range t.actual().taints(id.Device(name)) {
					if !slices.Contains(seen, taint.Effect) {
						seen = append(seen, taint.Effect)
						counts[DriverEffect{Driver: id.Driver, Effect: taint.Effect}]++
					}
				}
			}
		})
	}
	return counts
}

// poolIDs returns the pools with devices that are published or allocated.
func (t *Tracker) poolIDs() []device.ID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []device.ID
	for id := range device.Selected(t.pools, device.Selector{}) {
		ids = append(ids, id)
	}
	for id := range device.Selected(t.allocated, device.Selector{}) {
		if t.pools[id.Driver][id.Pool] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// inPool calls visit with a pool, nil if it is gone, under a read lock for that pool alone: no
// writer waits for all pools.
func (t *Tracker) inPool(id device.ID, visit func(*pool)) {
	t.read(func() { visit(t.pools[id.Driver][id.Pool]) })
}

// read calls ask under the read lock.
func (t *Tracker) read(ask func()) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	ask()
}
