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
	t := tally{Report: Report{Problems: p.problems}, naming: naming}
	for _, e := range entries {
		v.count(e, patch, &t)
	}
	t.cut()
	return t.Report, true
}

// newest returns the slices under a selector, without those of pools that have a later
// generation. The lock is held.
func (v *View) newest(selector selector) []*entry {
	var entries []*entry
	for _, p := range v.slices.drivers.Selected(selector) {
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
func (v *View) count(e *entry, patch string, t *tally) {
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
			t.Matched++
			t.FirstMatched = append(t.FirstMatched, id)
		case verdict.failed.Bit(i) == 1:
			t.Failed++
			t.FirstFailed = append(t.FirstFailed, Problem{Device: id, Message: verdict.problem})
		}
	}
	for _, l := range e.limits {
		id := idAt(e.raw, l.at)
		if p.patch.Changes() && p.selector.Matches(id) && verdict.holds(l.at) {
			t.Limited++
			t.FirstLimited = append(t.FirstLimited, Problem{Device: id, Message: l.problem})
		}
	}
	const many = 4096
	if len(t.FirstMatched)+len(t.FirstFailed)+len(t.FirstLimited) > many {
		t.cut()
	}
}

// tally is a report in the making.
type tally struct {
	Report

	naming int
}

// cut leaves no more names than are asked for.
func (t *tally) cut() {
	slices.SortFunc(t.FirstMatched, device.Compare)
	byDevice := func(a, b Problem) int {
		return cmp.Or(device.Compare(a.Device, b.Device), cmp.Compare(a.Message, b.Message))
	}
	slices.SortFunc(t.FirstFailed, byDevice)
	slices.SortFunc(t.FirstLimited, byDevice)
	t.FirstMatched = first(slices.Compact(t.FirstMatched), t.naming)
	t.FirstFailed = first(slices.Compact(t.FirstFailed), t.naming)
	t.FirstLimited = first(slices.Compact(t.FirstLimited), t.naming)
}

func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }
