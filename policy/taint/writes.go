package taint

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
	return Taint{Target: v1alpha1.TaintTargetNode, Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: validation.Stored(t.TimeAdded)}
}

// OfDevice returns a taint of a device of a driver.
func OfDevice(driver string, t *resourcev1.DeviceTaint) Taint {
	return Taint{
		Target: v1alpha1.TaintTargetDevice, Driver: driver,
		Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TimeAdded: validation.Stored(t.TimeAdded),
	}
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	s := policy.Short(t.Key, policy.MaxKeyLength)
	if t.Value != "" {
		s += "=" + policy.Short(t.Value, policy.Value)
	}
	return s + ":" + policy.Short(string(t.Effect), policy.Enum)
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

// stampWindow is the distance from now within which the time of a taint counts as filled in
// by Tollgate or the API server.
const stampWindow = 5 * time.Second

var nodeTaintsPath = field.NewPath("spec", "taints")

// NodeWrites returns what a request changes of the taints of a node, which had old
// (none when it is created). The order of the taints is not a change (C23), and
// neither is a time near to now for a taint that had none, because Tollgate sets it.
func NodeWrites(taints, old []corev1.Taint, now time.Time) []Write {
	return (&diff{path: nodeTaintsPath, old: mapped(old, OfNode), now: mapped(taints, OfNode), stamped: now}).writes()
}

// mapped returns the taints of a list.
func mapped[T any](list []T, of func(*T) Taint) []Taint {
	taints := make([]Taint, len(list))
	for i := range list {
		taints[i] = of(&list[i])
	}
	return taints
}

// SliceWrites returns the changes that a request makes to the taints of devices in a
// ResourceSlice. old are the previous devices, none at creation. Devices are matched by name,
// and the removal of a device removes its taints. The same change on several devices is one
// write.
func SliceWrites(driver string, list, old []validation.Device) []Write {
	path := field.NewPath("spec", "devices")
	stood := make(map[string][]resourcev1.DeviceTaint, len(old))
	for i := range old {
		stood[old[i].Name] = append(stood[old[i].Name], old[i].Taints...)
	}
	var all []Write
	at := map[[2]Taint]int{} // the position in all of a change
	ofDevice := func(t *resourcev1.DeviceTaint) Taint { return OfDevice(driver, t) }
	add := func(taints, before []resourcev1.DeviceTaint, path *field.Path) {
		d := diff{path: path, old: mapped(before, ofDevice), now: mapped(taints, ofDevice)}
		for _, w := range d.writes() {
			key := [2]Taint{w.Old, w.New}
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
			add(list[i].Taints, before, path.Index(i).Child("taints"))
		}
	}
	for i := range old { // in this order, so that the same request has the same answer
		add(nil, stood[old[i].Name], path)
		delete(stood, old[i].Name)
	}
	return all
}

// diff compares two lists of taints, whatever their order.
type diff struct {
	old, now []Taint
	// path is that of the list now, and of the taints that are not in it.
	path *field.Path
	// stamped is when Tollgate sets the times of taints that had none, which is no change; zero
	// where every other time is a change.
	stamped time.Time
	// fresh are the positions of the taints of now that are not in old.
	fresh []int
}

// writes returns the differences: first those of now, then those of old, each in their order, and
// sets fresh. Taints need not be unique, devices may even have one twice (AV-04).
func (d *diff) writes() []Write {
	left := make(map[Taint]int, len(d.old))
	for _, t := range d.old {
		left[t]++
	}
	for i, t := range d.now {
		if left[t] > 0 {
			left[t]--
		} else {
			d.fresh = append(d.fresh, i)
		}
	}
	gone := make([]bool, len(d.old))
	byKind := map[kind][]int{} // the positions of those that are gone
	for i, t := range d.old {
		if left[t] > 0 {
			left[t]--
			gone[i] = true
			byKind[t.kind()] = append(byKind[t.kind()], i)
		}
	}
	var writes []Write
	for _, i := range d.fresh {
		w := Write{Operation: v1alpha1.TaintAdd, New: d.now[i]}
		of := w.New.kind()
		if from := byKind[of]; len(from) > 0 { // a taint that came and one that went, of one kind, are a change
			w.Operation, w.Old = v1alpha1.TaintChange, d.old[from[0]]
			byKind[of], gone[from[0]] = from[1:], false
			if w.New.Value == w.Old.Value && w.Old.TimeAdded.IsZero() && !d.stamped.IsZero() && d.stamped.Sub(w.New.TimeAdded).Abs() <= stampWindow {
				continue
			}
		}
		w.Path = d.path.Index(i)
		writes = append(writes, w)
	}
	for i, t := range d.old {
		if gone[i] {
			writes = append(writes, Write{Operation: v1alpha1.TaintRemove, Old: t, Path: d.path})
		}
	}
	return writes
}
