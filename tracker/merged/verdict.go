package merged

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/patching"
)

// verdict is the answer to a question for the devices of a slice, by their position.
// A nil one says yes to all.
type verdict struct {
	yes, failed set
	// problem is why the question failed on the first device by name for which it did.
	problem string
}

// never says no to all.
var never = &verdict{}

func (v *verdict) holds(at int) bool { return v == nil || v.yes.has(at) }

// set is a set of positions.
type set []uint64

const word = 64 // bits

func (s set) has(at int) bool {
	return at/word < len(s) && s[at/word]&(1<<(at%word)) != 0
}

func (s set) with(at int) set {
	for at/word >= len(s) {
		s = append(s, 0)
	}
	s[at/word] |= 1 << (at % word)
	return s
}

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
	v := q.ask(&e.raw.Spec, p.selector)
	e.verdicts[q] = v
	return v
}

// ask asks about the devices that are selected by name.
func (q *question) ask(spec *resourcev1.ResourceSliceSpec, selector selector) *verdict {
	name, named := selector.Name()
	v, first := verdict{}, ""
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if named && d.Name != name {
			continue
		}
		yes, err := q.filter.Satisfies(q.class, spec.Driver, d)
		switch {
		case yes:
			v.yes = v.yes.with(i)
		case err != nil:
			if v.failed == nil || d.Name < first {
				v.problem, first = err.Error(), d.Name
			}
			v.failed = v.failed.with(i)
		}
	}
	if v.yes == nil && v.failed == nil {
		return never
	}
	return &v
}

// forget drops the answers to a question that will not be asked again.
func (e *entry) forget(q *question) {
	delete(e.verdicts, q)
	if len(e.verdicts) == 0 {
		e.verdicts = nil
	}
}

// sameToFilters reports whether what was answered for one slice holds for the other.
func sameToFilters(a, b *resourcev1.ResourceSlice) bool {
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
