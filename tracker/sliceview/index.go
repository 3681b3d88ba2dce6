package sliceview

import (
	"iter"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// searched is up to how many slices of a pool are searched for a device. Only
// larger pools have an index of devices: it costs some 50 bytes a device, and the
// usual pool is one node's and has one slice.
const searched = 4

// entry is one slice.
type entry struct {
	raw *resourcev1.ResourceSlice
	// patched and merged are nil until somebody asks for them. Limits go with patched.
	patched, merged *resourcev1.ResourceSlice
	limits          []limit
	// verdicts has what was found out for patches; nil for nothing.
	verdicts map[*question]*verdict
	// devices are those of raw as questions see them; nil while none is asked.
	devices *slicepatch.Devices
	pool    *pool
	// at is where the entry stands in its pool.
	at int
}

// pool has the slices of one pool of one driver, of all generations.
type pool struct {
	entries []*entry
	// devices has a slice with that device, and others those that have it as well,
	// as those of two generations do. Both are nil in a small pool.
	devices map[string]*entry
	others  map[string][]*entry
}

// index finds slices by name and by what a selector asks for.
type index struct {
	byName  map[string]*entry
	drivers map[string]map[string]*pool
}

// set takes in a slice and reports whether its name is new.
func (x *index) set(slice *resourcev1.ResourceSlice) bool {
	e, found := x.byName[slice.Name]
	if !found {
		e = &entry{raw: slice}
		x.byName[slice.Name] = e
		x.join(e)
		return true
	}
	was := e.raw
	if was == slice {
		return false // a resync
	}
	if e.verdicts != nil && !sameAnswers(was, slice) {
		e.verdicts = nil
	}
	switch {
	case was.Spec.Driver != slice.Spec.Driver || was.Spec.Pool.Name != slice.Spec.Pool.Name:
		x.leave(e)
		e.raw = slice
		x.join(e)
	case e.pool.devices == nil || sameDevices(was, slice):
		e.raw = slice
	default:
		e.pool.dropDevices(e)
		e.raw = slice
		e.pool.addDevices(e)
	}
	e.patched, e.merged, e.devices = nil, nil, nil
	return false
}

// remove takes out a slice and reports whether there was one.
func (x *index) remove(name string) bool {
	e, found := x.byName[name]
	if found {
		x.leave(e)
		delete(x.byName, name)
	}
	return found
}

func (x *index) join(e *entry) {
	pools := x.drivers[e.raw.Spec.Driver]
	if pools == nil {
		pools = map[string]*pool{}
		x.drivers[e.raw.Spec.Driver] = pools
	}
	p := pools[e.raw.Spec.Pool.Name]
	if p == nil {
		p = &pool{}
		pools[e.raw.Spec.Pool.Name] = p
	}
	p.add(e)
}

func (x *index) leave(e *entry) {
	e.pool.drop(e)
	if len(e.pool.entries) > 0 {
		return
	}
	pools := x.drivers[e.raw.Spec.Driver]
	delete(pools, e.raw.Spec.Pool.Name)
	if len(pools) == 0 {
		delete(x.drivers, e.raw.Spec.Driver)
	}
}

// selected yields the slices of which a selector may select a device.
func (x *index) selected(selector selector) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for p := range x.pools(selector) {
			if !p.selected(selector, yield) {
				return
			}
		}
	}
}

// pools yields the pools that a selector is about.
func (x *index) pools(selector selector) iter.Seq[*pool] {
	driver, oneDriver := selector.Driver()
	name, onePool := selector.Pool()
	return func(yield func(*pool) bool) {
		if oneDriver {
			yieldPools(x.drivers[driver], name, onePool, yield)
			return
		}
		for _, pools := range x.drivers {
			if !yieldPools(pools, name, onePool, yield) {
				return
			}
		}
	}
}

func yieldPools(pools map[string]*pool, name string, one bool, yield func(*pool) bool) bool {
	if one {
		p, found := pools[name]
		return !found || yield(p)
	}
	for _, p := range pools {
		if !yield(p) {
			return false
		}
	}
	return true
}

// sameDevices reports whether two slices name the same devices in the same order.
func sameDevices(a, b *resourcev1.ResourceSlice) bool {
	if len(a.Spec.Devices) != len(b.Spec.Devices) {
		return false
	}
	for i := range a.Spec.Devices {
		if a.Spec.Devices[i].Name != b.Spec.Devices[i].Name {
			return false
		}
	}
	return true
}
