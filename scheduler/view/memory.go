package view

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// memory is what was found out about the devices of a slice.
type memory struct {
	slice   *resourcev1.ResourceSlice
	answers map[*question]*answer
	// devices are those of the slice as questions see them, nil while none is asked.
	devices *slicepatch.Devices
}

// answer has the positions of the devices that a question holds for, as bits. It does
// not change. A nil one is all of them.
type answer []uint64

// none is the one answer without devices.
var none = &answer{}

const word = 64 // bits

func (a *answer) has(at int) bool {
	return a == nil || at/word < len(*a) && (*a)[at/word]&(1<<(at%word)) != 0
}

// recall returns what is known about the slice: that of the one before for the questions
// that are still asked, if it is the same to filters.
func (s *set) recall(slice *resourcev1.ResourceSlice, earlier Result) *memory {
	found := &memory{slice: slice, answers: map[*question]*answer{}}
	before, _ := earlier.Memory.(*memory)
	if before == nil || !sameToFilters(before.slice, slice) {
		return found
	}
	for q, answer := range before.answers {
		if _, asked := s.questions[q]; asked {
			found.answers[q] = answer
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
		if !slicepatch.SameToFilters(&a.Spec.Devices[i], &b.Spec.Devices[i]) {
			return false
		}
	}
	return true
}

// ask returns which devices a patch is meant for, of those that it may select by their
// names. An expression that fails on a device leaves that device alone, and Tollgate
// reports it.
func (m *memory) ask(p *patchesPatch) *answer {
	q := p.question
	if q == nil {
		return nil
	}
	if known, found := m.answers[q]; found {
		return known
	}
	if m.devices == nil {
		m.devices = slicepatch.See(&m.slice.Spec)
	}
	given := none
	q.filter.Ask(q.class, m.devices, q.filter.Names.Device, func(at int, yes bool, _ error) {
		if !yes {
			return
		}
		if given == none {
			bits := make(answer, (len(m.slice.Spec.Devices)+word-1)/word)
			given = &bits
		}
		(*given)[at/word] |= 1 << (at % word)
	})
	m.answers[q] = given
	return given
}
