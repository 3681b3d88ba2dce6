package taint

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// Taint is a taint of a node or of a device. Two taints are the same if they are
// equal, which their times are where they are the same second: the functions of this
// package see to it.
type Taint struct {
	Target v1alpha1.TaintTarget
	// Driver is the driver of the device; empty in a rule that names none, which
	// is a rule over devices of every driver.
	Driver     string
	Key, Value string
	Effect     corev1.TaintEffect
	TimeAdded  time.Time // zero for none
}

// OfNode returns a taint of a node.
func OfNode(t *corev1.Taint) Taint {
	return Taint{Target: v1alpha1.TaintTargetNode, Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: second(t.TimeAdded)}
}

// OfDevice returns a taint of a device of a driver.
func OfDevice(driver string, t *resourcev1.DeviceTaint) Taint {
	return Taint{
		Target: v1alpha1.TaintTargetDevice, Driver: driver,
		Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TimeAdded: second(t.TimeAdded),
	}
}

// second returns a time as the API server stores it, in a form that can be compared.
func second(t *metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(t.Unix(), 0).UTC()
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	s := policy.Short(t.Key, policy.MaxKeyLength)
	if t.Value != "" {
		s += "=" + policy.Short(t.Value, policy.Value)
	}
	return s + ":" + policy.Short(string(t.Effect), policy.Enum)
}

// object returns the taint for expressions.
func (t Taint) object() *corev1.Taint {
	return &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: new(metav1.NewTime(t.TimeAdded))}
}

// kind identifies a taint on its object by key and effect. A write between two taints of one
// kind is a change of value or time; between different kinds it is a removal and an addition.
type kind struct {
	key    string
	effect corev1.TaintEffect
}

func (t Taint) kind() kind { return kind{t.Key, t.Effect} }

// Write is one change of a taint.
type Write struct {
	Operation v1alpha1.TaintOperation
	// Old and New are the taint before and after; Old is zero for Add, New for Remove.
	Old, New Taint
	// Path is where the taint stands.
	Path *field.Path
	// Times counts the devices of a slice whose taints changed alike, of which Path is
	// the first. Zero counts for one.
	Times int
	// replaced is the taint whose place New takes although it is of another kind, as that
	// of a rule is; zero for none.
	replaced Taint
}

// taint is what a sentence about the write names.
func (w *Write) taint() Taint {
	if w.Operation == v1alpha1.TaintRemove {
		return w.Old
	}
	return w.New
}

// before returns the taint in the place of which New stands; zero for none.
func (w *Write) before() Taint {
	if w.Operation == v1alpha1.TaintChange {
		return w.Old
	}
	return w.replaced
}

// stampWindow is the distance from now within which the time of a taint counts as filled in
// by Tollgate or the API server.
const stampWindow = 5 * time.Second

// NodeWrites returns what a request changes of the taints of a node, which had old
// (none when it is created). The order of the taints is not a change (C23), and
// neither is a time near to now for a taint that had none, because Tollgate sets it.
func NodeWrites(taints, old []corev1.Taint, now time.Time) []Write {
	d := diff{
		path: nodeTaintsPath.Index,
		gone: nodeTaintsPath,
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
	writes, _ := d.writes()
	return writes
}

// SliceWrites returns the changes that a request makes to the taints of devices in a
// ResourceSlice. old are the previous devices, none at creation. Devices are matched by name,
// and the removal of a device removes its taints. The same change on several devices is one
// write.
func SliceWrites(driver string, list, old []validation.Device) []Write {
	path := field.NewPath("spec", "devices")
	stood := make(map[string][]resourcev1.DeviceTaint, len(old))
	for i := range old {
		if len(old[i].Taints) > 0 {
			stood[old[i].Name] = append(stood[old[i].Name], old[i].Taints...)
		}
	}
	var all []Write
	type difference struct {
		operation v1alpha1.TaintOperation
		old, now  Taint
	}
	at := map[difference]int{}
	add := func(writes []Write) {
		for _, w := range writes {
			key := difference{w.Operation, w.Old, w.New}
			if i, ok := at[key]; ok {
				all[i].Times++
				continue
			}
			at[key], w.Times = len(all), 1
			all = append(all, w)
		}
	}
	for i := range list {
		before := stood[list[i].Name]
		delete(stood, list[i].Name)
		if len(before)+len(list[i].Taints) > 0 {
			taints := path.Index(i).Child("taints")
			writes, _ := deviceDiff(driver, list[i].Taints, before, taints.Index, taints).writes()
			add(writes)
		}
	}
	for i := range old { // in this order, so that the same request has the same answer
		if before, ok := stood[old[i].Name]; ok {
			delete(stood, old[i].Name)
			writes, _ := deviceDiff(driver, nil, before, nil, path).writes()
			add(writes)
		}
	}
	return all
}

func deviceDiff(driver string, taints, old []resourcev1.DeviceTaint, path func(int) *field.Path, gone *field.Path) *diff {
	d := &diff{path: path, gone: gone}
	for i := range old {
		d.old = append(d.old, OfDevice(driver, &old[i]))
	}
	for i := range taints {
		d.now = append(d.now, OfDevice(driver, &taints[i]))
	}
	return d
}

// diff compares two lists of taints, whatever their order.
type diff struct {
	old, now []Taint
	// path returns the path of a taint of now, and gone is that of the others.
	path func(int) *field.Path
	gone *field.Path
	// same reports whether a taint of now is to be taken for one of old that has the
	// same key, value and effect and another time; nil if it never is.
	same func(now, old Taint) bool
}

// writes returns the differences: first those of now, then those of old, each in their order,
// and the positions of the taints of now that are not in old. Taints need not be unique,
// devices may even have one twice (AV-04).
func (d *diff) writes() (writes []Write, fresh []int) {
	var gone []Taint
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
	// A taint that came and one that went are a change where they are of one kind.
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
		if t.Value != old.Value || d.same == nil || !d.same(t, old) {
			writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: old, New: t, Path: d.path(i)})
		}
	}
	for i, t := range gone {
		if !changed[i] {
			writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: t, Path: d.gone})
		}
	}
	return writes, fresh
}
