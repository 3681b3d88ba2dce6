package sliceview

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Report is what a patch does to the devices in the newest slices of each pool. A device
// that two of those publish counts twice.
type Report struct {
	// Problems say why no part of the patch is in force; then it matches nothing.
	Problems field.ErrorList
	// Matched is how many devices it is meant for, Failed on how many an expression
	// failed, and Limited how many of those matched keep the attributes and the capacity
	// that they published.
	Matched, Failed, Limited int
	// The first of each by driver, pool and name.
	FirstMatched              []device.ID
	FirstFailed, FirstLimited []Problem
}

// Problem is why a patch does not change a device, or not all of it.
type Problem struct {
	Device device.ID
	// Message is for the user of the patch. Where an expression failed on several
	// devices of a slice, it says why it did on the first of them.
	Message string
}

// Report returns what a patch does, and naming at most so many devices of each kind, or
// false if there is no such patch. What has not been asked about a device yet is asked
// now, without keeping others waiting for longer than that takes for one slice. A change
// that comes in meanwhile is in the report or not.
func (v *View) Report(patch string, naming int) (Report, bool) {
	v.mutex.Lock()
	p, found := v.patches.byName[patch]
	var entries []*entry
	if found && p.patch != nil {
		entries = v.newest(p.selector)
	}
	v.mutex.Unlock()
	if !found {
		return Report{}, false
	}
	r := Report{Problems: p.problems}
	for _, e := range entries {
		v.count(e, patch, &r, naming)
	}
	r.cut(naming)
	return r, true
}

// newest returns the slices under a selector, without those of pools that have a later
// generation. The lock is held.
func (v *View) newest(selector selector) []*entry {
	var entries []*entry
	for _, p := range device.Selected(v.slices.drivers, selector) {
		last := int64(math.MinInt64)
		for _, e := range p.entries {
			last = max(last, e.raw.Spec.Pool.Generation)
		}
		for _, e := range p.selected(selector) {
			if e.raw.Spec.Pool.Generation == last {
				entries = append(entries, e)
			}
		}
	}
	return entries
}

// count adds what a patch does to one slice, if both are still there.
func (v *View) count(e *entry, patch string, r *Report, naming int) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	p := v.patches.byName[patch]
	if p == nil || p.patch == nil || v.slices.byName[e.raw.Name] != e {
		return
	}
	v.patch(e)
	verdict := e.verdict(p)
	for i := range e.raw.Spec.Devices {
		id := idAt(e.raw, i)
		switch {
		case !p.selector.Matches(id):
		case verdict.holds(i):
			r.Matched++
			r.FirstMatched = append(r.FirstMatched, id)
		case verdict.failed.Bit(i) == 1:
			r.Failed++
			r.FirstFailed = append(r.FirstFailed, Problem{Device: id, Message: verdict.problem})
		}
	}
	for _, l := range e.limits {
		id := idAt(e.raw, l.at)
		if p.patch.Changes() && p.selector.Matches(id) && verdict.holds(l.at) {
			r.Limited++
			r.FirstLimited = append(r.FirstLimited, Problem{Device: id, Message: l.problem})
		}
	}
	const many = 4096
	if len(r.FirstMatched)+len(r.FirstFailed)+len(r.FirstLimited) > many {
		r.cut(naming)
	}
}

// cut leaves no more names than are asked for.
func (r *Report) cut(naming int) {
	byDevice := func(a, b Problem) int {
		return cmp.Or(device.Compare(a.Device, b.Device), cmp.Compare(a.Message, b.Message))
	}
	r.FirstMatched = first(r.FirstMatched, device.Compare, naming)
	r.FirstFailed = first(r.FirstFailed, byDevice, naming)
	r.FirstLimited = first(r.FirstLimited, byDevice, naming)
}

// first returns the first n different elements of a list, which it sorts.
func first[T comparable](list []T, compare func(a, b T) int, n int) []T {
	slices.SortFunc(list, compare)
	list = slices.Compact(list)
	return list[:min(n, len(list))]
}
