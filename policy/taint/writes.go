package taint

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// stampWindow is how near to now the time of a taint must be to be taken for one that
// Tollgate or the API server has filled in.
const stampWindow = 5 * time.Second

// NodeWrites returns what a request changes of the taints of a node, which had old
// (none when it is created). The order of the taints is not a change (C23), and
// neither is a time near to now for a taint that had none: that is Tollgate's doing.
func NodeWrites(taints, old []corev1.Taint, now time.Time) []Write {
	path := field.NewPath("spec", "taints")
	d := diff{
		path: path.Index,
		gone: path,
		same: func(a, b Taint) bool {
			return b.TimeAdded.IsZero() && now.Sub(a.TimeAdded).Abs() <= stampWindow
		},
	}
	for i := range old {
		d.old = append(d.old, OfNode(&old[i]))
	}
	for i := range taints {
		d.now = append(d.now, OfNode(&taints[i]))
	}
	return d.writes()
}

// SliceWrites returns what a request changes of the taints of the devices in a
// ResourceSlice, which had old (none when it is created). Devices are told apart by
// their names; with a device that is no longer published go its taints. What changes
// alike on many devices is one write.
func SliceWrites(driver string, list, old []validation.Device) []Write {
	path := field.NewPath("spec", "devices")
	stood := make(map[string][]resourcev1.DeviceTaint, len(old))
	for i := range old {
		if len(old[i].Taints) > 0 {
			stood[old[i].Name] = append(stood[old[i].Name], old[i].Taints...)
		}
	}
	var all alike
	for i := range list {
		before := stood[list[i].Name]
		delete(stood, list[i].Name)
		if len(before)+len(list[i].Taints) > 0 {
			taints := path.Index(i).Child("taints")
			all.add(deviceDiff(driver, list[i].Taints, before, taints.Index, taints).writes())
		}
	}
	for i := range old { // in this order, so that the same request has the same answer
		if before, ok := stood[old[i].Name]; ok {
			delete(stood, old[i].Name)
			all.add(deviceDiff(driver, nil, before, nil, path).writes())
		}
	}
	return all.list
}

func deviceDiff(driver string, taints, old []resourcev1.DeviceTaint, path func(int) *field.Path, gone *field.Path) *diff {
	d := &diff{path: path, gone: gone, same: func(Taint, Taint) bool { return false }}
	for i := range old {
		d.old = append(d.old, OfDevice(driver, &old[i]))
	}
	for i := range taints {
		d.now = append(d.now, OfDevice(driver, &taints[i]))
	}
	return d
}

// alike collects writes and counts those that are the same.
type alike struct {
	list []Write
	at   map[likeness]int
}

type likeness struct {
	operation v1alpha1.TaintOperation
	old, now  Taint
}

func (a *alike) add(writes []Write) {
	if a.at == nil {
		a.at = map[likeness]int{}
	}
	for i := range writes {
		w := &writes[i]
		key := likeness{w.Operation, w.Old, w.New}
		if at, ok := a.at[key]; ok {
			a.list[at].Times++
			continue
		}
		a.at[key] = len(a.list)
		w.Times = 1
		a.list = append(a.list, *w)
	}
}

// diff compares two lists of taints, whatever their order.
type diff struct {
	old, now []Taint
	// path returns the path of a taint of now, and gone is that of the others.
	path func(int) *field.Path
	gone *field.Path
	// same reports whether a taint of now is to be taken for one of old that has the
	// same key, value and effect and another time.
	same func(now, old Taint) bool
}

// writes returns the differences: first those of now, then those of old, each in
// their order. Taints need not be unique, devices may even have one twice (AV-04).
func (d *diff) writes() []Write {
	return d.pair(d.unmatched())
}

// unmatched returns the positions of those of now that are not in old, and those of old
// that are not in now.
func (d *diff) unmatched() (fresh []int, gone []Taint) {
	left := make(map[Taint]int, len(d.old))
	for _, t := range d.old {
		left[t]++
	}
	for i, t := range d.now {
		if left[t] > 0 {
			left[t]--
		} else {
			fresh = append(fresh, i)
		}
	}
	for _, t := range d.old {
		if left[t] > 0 {
			left[t]--
			gone = append(gone, t)
		}
	}
	return fresh, gone
}

// pair makes changes of what came and what went where they are of one kind.
func (d *diff) pair(fresh []int, gone []Taint) []Write {
	var writes []Write
	byKind := make(map[kind][]int, len(gone))
	for i, t := range gone {
		byKind[t.kind()] = append(byKind[t.kind()], i)
	}
	changed := make([]bool, len(gone))
	for _, i := range fresh {
		t := d.now[i]
		from := byKind[t.kind()]
		if len(from) == 0 {
			writes = append(writes, Write{Operation: v1alpha1.TaintAdd, New: t, Path: d.path(i)})
			continue
		}
		old := gone[from[0]]
		byKind[t.kind()], changed[from[0]] = from[1:], true
		if t.Value != old.Value || !d.same(t, old) {
			writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: old, New: t, Path: d.path(i)})
		}
	}
	for i, t := range gone {
		if !changed[i] {
			writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: t, Path: d.gone})
		}
	}
	return writes
}
