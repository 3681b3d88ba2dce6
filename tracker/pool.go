package tracker

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// poolID returns the pool of the slice, as an ID without the name of a device. Two drivers
// may use one name for a pool (K09).
func (s *Slice) poolID() device.ID {
	return device.ID{Driver: s.Driver, Pool: s.Pool}
}

// pool is the slices of one pool and the taints that they put on its devices.
//
// Only slices of the newest generation count (DE-16), whether or not all of them
// are there yet (DE-17). When the last of them goes, the generation before counts
// again (DE-18).
type pool struct {
	// generations holds the slices of each generation, by name.
	generations device.Table[int64, string, *Slice]
	newest      int64
	// tainted holds the taints of the devices that have some, by device name, in
	// the order of their slices and then as they stand there. Its values are
	// replaced, never written to.
	tainted map[string][]Taint
}

func newPool() *pool {
	return &pool{generations: device.Table[int64, string, *Slice]{}, tainted: map[string][]Taint{}}
}

// replace puts slice in the place of old, nil for none, and returns the names of
// the devices whose NoExecute taints changed by that.
func (p *pool) replace(old, slice *Slice) []string {
	if old != nil {
		p.generations.Delete(old.Generation, old.Name)
	}
	if slice != nil {
		p.generations.Set(slice.Generation, slice.Name, slice)
	}
	before := p.newest
	p.newest = 0
	for generation := range p.generations {
		p.newest = max(p.newest, generation)
	}
	gone, come := []*Slice{old}, []*Slice{slice}
	if before != p.newest {
		gone = slices.AppendSeq(gone, maps.Values(p.generations[before]))
		come = slices.Collect(maps.Values(p.generations[p.newest]))
	}
	taints := map[string][]Taint{}
	for _, s := range gone {
		s.eachTainted(before, func(d *Device) { taints[d.Name] = nil })
	}
	for _, s := range come {
		s.eachTainted(p.newest, func(d *Device) {
			taints[d.Name] = append(taints[d.Name], datedTaints(d.Taints, p.tainted[d.Name], s.source(), s.seen)...)
		})
	}
	replaced := cmp.Or(old, slice).source()
	var changed []string
	for name, after := range taints {
		known := p.tainted[name]
		for _, t := range known {
			// Those that another slice puts on a device of the same name stay: a driver that
			// publishes a device twice does not get rid of a taint by that.
			if before == p.newest && t.Source != replaced {
				after = append(after, t)
			}
		}
		slices.SortStableFunc(after, func(a, b Taint) int { return cmp.Compare(a.Source.Name, b.Source.Name) })
		if len(after) == 0 {
			delete(p.tainted, name)
		} else {
			p.tainted[name] = after
		}
		if !slices.EqualFunc(evictingOnly(known), evictingOnly(after), sameEffect) {
			changed = append(changed, name)
		}
	}
	return changed
}

// eachTainted calls visit with the devices with taints of a slice, if it is of a generation;
// none of no slice.
func (s *Slice) eachTainted(generation int64, visit func(*Device)) {
	if s == nil || s.Generation != generation {
		return
	}
	for i := range s.Devices {
		if d := &s.Devices[i]; len(d.Taints) > 0 {
			visit(d)
		}
	}
}

// devices yields the devices of the slices that count, each with its slice; none of no pool.
func (p *pool) devices() iter.Seq2[*Slice, *Device] {
	return func(yield func(*Slice, *Device) bool) {
		if p == nil {
			return
		}
		for _, slice := range p.generations[p.newest] {
			for i := range slice.Devices {
				if !yield(slice, &slice.Devices[i]) {
					return
				}
			}
		}
	}
}

// clone returns a copy that can be changed alone.
func (p *pool) clone() *pool {
	c := &pool{generations: maps.Clone(p.generations), newest: p.newest, tainted: maps.Clone(p.tainted)}
	for generation, members := range p.generations {
		c.generations[generation] = maps.Clone(members)
	}
	return c
}

func (s *Slice) source() Source {
	return Source{Kind: SourceSlice, Name: s.Name}
}

// dated returns the taint of an object, dated. A taint without a time counts from now (DE-30, K08). The
// API server stores no such taint of a device or in a rule, but a client may be handed one.
func dated(spec resourcev1.DeviceTaint, source Source, now time.Time) Taint {
	taint := Taint{
		Key: spec.Key, Value: spec.Value, Effect: corev1.TaintEffect(spec.Effect),
		TimeAdded: now, Seen: now, Source: source,
	}
	if !spec.TimeAdded.IsZero() {
		taint.TimeAdded, taint.Stamped = spec.TimeAdded.Time, true
	}
	return taint
}

// datedTaints returns the taints of a device, dated. One without a time that is among prior
// counts from when it was first seen.
func datedTaints(specs []resourcev1.DeviceTaint, prior []Taint, source Source, now time.Time) []Taint {
	taints := make([]Taint, 0, len(specs))
	for _, spec := range specs {
		taint := dated(spec, source, now)
		for _, old := range prior {
			if old.Key != taint.Key || old.Value != taint.Value || old.Effect != taint.Effect {
				continue
			}
			taint.Seen, taint.Changed = old.Seen, old.Changed
			if !taint.Stamped {
				taint.TimeAdded = old.Seen
			}
			if taint.TimeAdded.Before(old.TimeAdded) {
				taint.Changed = now
			}
			break
		}
		taints = append(taints, taint)
	}
	return taints
}

// evictingOnly returns the NoExecute taints among taints: taints itself when that
// is all of them.
func evictingOnly(taints []Taint) []Taint {
	if !slices.ContainsFunc(taints, func(t Taint) bool { return t.Effect != corev1.TaintEffectNoExecute }) {
		return taints
	}
	var evicting []Taint
	for _, t := range taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			evicting = append(evicting, t)
		}
	}
	return evicting
}

// PoolOfOthers reports whether a pool has slices, beside the one with a name, that belong to
// another node than that one does, or to none: one driver publishes the slices of one pool,
// so the user who may write for the node of one may not for the node of another.
func (t *Tracker) PoolOfOthers(slice *Slice) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	known, ok := t.pools[slice.Driver][slice.Pool]
	if !ok {
		return false
	}
	for _, generation := range known.generations {
		for name, other := range generation {
			if name != slice.Name && other.Node != slice.Node {
				return true
			}
		}
	}
	return false
}
