package sliceview

import (
	"iter"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// searched is up to how many slices of a pool are searched for a device. Only
// larger pools have an index of devices: it costs some 50 bytes a device, and the
// usual pool is one node's and has one slice.
const searched = 4

// entry is one slice.
type entry struct {
	raw *resourcev1.ResourceSlice
	// patched and merged are nil until they are asked for. Limits go with patched.
	patched, merged *resourcev1.ResourceSlice
	limits          []limit
	// verdicts has the answers to questions of patches; nil for none.
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

// index finds slices by name and by selector.
type index struct {
	byName  map[string]*entry
	drivers device.Pools[*pool]
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
	case poolOf(was) != poolOf(slice):
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
	id := poolOf(e.raw)
	p, found := x.drivers[id.Driver][id.Pool]
	if !found {
		p = &pool{}
		x.drivers.Set(id.Driver, id.Pool, p)
	}
	e.pool, e.at = p, len(p.entries)
	p.entries = append(p.entries, e)
	switch {
	case p.devices != nil:
		p.addDevices(e)
	case len(p.entries) > searched:
		p.devices, p.others = map[string]*entry{}, map[string][]*entry{}
		for _, e := range p.entries {
			p.addDevices(e)
		}
	}
}

func (x *index) leave(e *entry) {
	p := e.pool
	p.dropDevices(e)
	last := len(p.entries) - 1
	moved := p.entries[last]
	p.entries[e.at], moved.at = moved, e.at
	p.entries[last] = nil
	p.entries = p.entries[:last]
	if last == 0 {
		x.drivers.Delete(e.raw.Spec.Driver, e.raw.Spec.Pool.Name)
	}
}

// selected yields the slices of which a selector may select a device.
func (x *index) selected(selector selector) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, p := range device.Selected(x.drivers, selector) {
			for _, e := range p.selected(selector) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// sameDevices reports whether two slices name the same devices in the same order.
func sameDevices(a, b *resourcev1.ResourceSlice) bool {
	return slices.EqualFunc(a.Spec.Devices, b.Spec.Devices, func(a, b resourcev1.Device) bool { return a.Name == b.Name })
}
