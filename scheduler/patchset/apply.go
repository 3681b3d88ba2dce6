package patchset

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/patching"
	"github.com/tollgate-dev/tollgate/scheduler/view"
)

// memory is what was found out about the devices of a slice.
type memory struct {
	slice *resourcev1.ResourceSlice
	// answers are by device. A question is not in it while no device was asked.
	answers map[*question][]answer
}

type answer uint8

const (
	unknown answer = iota
	yes
	no
)

// Apply returns the slice with the patches. Filters see what the driver published:
// rules have only added taints to that, which filters do not see.
func (s *set) Apply(slice *resourcev1.ResourceSlice, earlier view.Result) view.Result {
	found := s.recall(slice, earlier)
	var (
		devices []resourcev1.Device
		last    []*patch
		overlay *patching.Overlay
	)
	for i := range slice.Spec.Devices {
		matching := s.matching(slice, i, found)
		if len(matching) == 0 {
			continue
		}
		// Neighbours mostly have the same patches.
		if overlay == nil || !slices.Equal(matching, last) {
			overlay, last = combine(matching), matching
		}
		if devices == nil {
			devices = slices.Clone(slice.Spec.Devices)
		}
		// A device that would be beyond what the API allows keeps what it published, and
		// Tollgate reports it.
		devices[i], _ = overlay.Apply(slice.Spec.Driver, &slice.Spec.Devices[i])
	}
	if devices == nil {
		return view.Result{Slice: slice, Memory: found}
	}
	patched := *slice
	patched.Spec.Devices = devices
	return view.Result{Slice: &patched, Memory: found}
}

// recall returns what is known about the slice: that of the one before for the questions
// that are still asked, if it is the same to filters.
func (s *set) recall(slice *resourcev1.ResourceSlice, earlier view.Result) *memory {
	found := &memory{slice: slice, answers: map[*question][]answer{}}
	before, _ := earlier.Memory.(*memory)
	if before == nil || !sameToFilters(before.slice, slice) {
		return found
	}
	for q, answers := range before.answers {
		if _, asked := s.questions[q]; asked {
			// The one before may still be in use.
			found.answers[q] = slices.Clone(answers)
		}
	}
	return found
}

func sameToFilters(a, b *resourcev1.ResourceSlice) bool {
	if a == b {
		return true
	}
	if a.Spec.Driver != b.Spec.Driver || len(a.Spec.Devices) != len(b.Spec.Devices) {
		return false
	}
	for i := range a.Spec.Devices {
		if !patching.SameToFilters(&a.Spec.Devices[i], &b.Spec.Devices[i]) {
			return false
		}
	}
	return true
}

// matching returns the patches that are meant for a device, in the order of Compare.
func (s *set) matching(slice *resourcev1.ResourceSlice, i int, found *memory) []*patch {
	var matching []*patch
	for _, driver := range []string{"", slice.Spec.Driver} {
		for _, pool := range []string{"", slice.Spec.Pool.Name} {
			for _, device := range []string{"", slice.Spec.Devices[i].Name} {
				for _, p := range s.named[names{driver: driver, pool: pool, device: device}] {
					if p.question == nil || found.ask(p.question, i) {
						matching = append(matching, p)
					}
				}
			}
		}
	}
	slices.SortFunc(matching, func(a, b *patch) int { return patching.Compare(a.Patch, b.Patch) })
	return matching
}

// ask evaluates a question about a device unless it was before. One that fails leaves the
// device alone, and Tollgate reports it.
func (m *memory) ask(q *question, i int) bool {
	answers, asked := m.answers[q]
	if !asked {
		answers = make([]answer, len(m.slice.Spec.Devices))
		m.answers[q] = answers
	}
	if answers[i] == unknown {
		answers[i] = no
		if satisfied, err := q.filter.Satisfies(q.class, m.slice.Spec.Driver, &m.slice.Spec.Devices[i]); err == nil && satisfied {
			answers[i] = yes
		}
	}
	return answers[i] == yes
}

func combine(matching []*patch) *patching.Overlay {
	patches := make([]*patching.Patch, len(matching))
	for i, p := range matching {
		patches[i] = p.Patch
	}
	return patching.Combine(patches)
}
