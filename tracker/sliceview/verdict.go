package sliceview

import (
	"math/big"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// verdict is the answer to a question for the devices of a slice, by their position. It
// does not change, and slices that are alike share it. A nil one says yes to all.
type verdict struct {
	// yes and failed have the bit of each device for which the answer is yes, or fails.
	yes, failed big.Int
	// problem is why the question failed on the first device by name for which it did.
	problem string
}

// never says no to all.
var never = &verdict{}

func (v *verdict) holds(at int) bool { return v == nil || v.yes.Bit(at) == 1 }

// verdict returns which devices of the slice a patch is meant for, of those that it may
// select by their names. It is found out once, and kept until the slice or the question
// changes.
func (e *entry) verdict(p *slicePatch) *verdict {
	q := p.question
	switch {
	case q == nil:
		return nil
	case q.filter.Class != "" && q.class == nil:
		return never
	}
	if v, found := e.verdicts[q]; found {
		return v
	}
	if e.verdicts == nil {
		e.verdicts = map[*question]*verdict{}
	}
	v := q.ask(e.see())
	e.verdicts[q] = v
	return v
}

// see returns the devices of the slice for many questions. They are dropped when those are
// answered: most slices are not asked about for long.
func (e *entry) see() *slicepatch.Devices {
	if e.devices == nil {
		e.devices = slicepatch.See(&e.raw.Spec)
	}
	return e.devices
}

// ask asks about the devices that are selected by name.
func (q *question) ask(devices *slicepatch.Devices) *verdict {
	v := &verdict{}
	q.filter.Ask(q.class, devices, q.filter.Names.Device, func(at int, yes bool, err error) {
		switch {
		case yes:
			v.yes.SetBit(&v.yes, at, 1)
		case err != nil:
			if v.failed.Sign() == 0 {
				v.problem = err.Error()
			}
			v.failed.SetBit(&v.failed, at, 1)
		}
	})
	if v.yes.Sign() == 0 && v.failed.Sign() == 0 {
		return never
	}
	if last := q.last.Load(); last != nil &&
		v.yes.Cmp(&last.yes) == 0 && v.failed.Cmp(&last.failed) == 0 && v.problem == last.problem {
		return last
	}
	q.last.Store(v)
	return v
}

// sameAnswers reports whether the answers for one slice hold for the other.
func sameAnswers(a, b *resourcev1.ResourceSlice) bool {
	return poolOf(a) == poolOf(b) &&
		slices.EqualFunc(a.Spec.Devices, b.Spec.Devices, func(a, b resourcev1.Device) bool { return slicepatch.SameToFilters(&a, &b) })
}
