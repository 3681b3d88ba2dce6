package tracker

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SourceKind says what kind of object a taint comes from.
type SourceKind string

// The kinds of objects that carry taints. The values are metric labels.
const (
	SourceNode  SourceKind = "node"
	SourceSlice SourceKind = "resourceslice"
	SourceRule  SourceKind = "devicetaintrule"
	// SourcePatch is a ResourceSlicePatch. Its taints stand in rules, which are the source
	// of what holds; it is that of what would hold if the patch were written, and what
	// users are told of.
	SourcePatch SourceKind = "resourceslicepatch"
)

// OnDevice reports whether objects of that kind taint devices.
func (k SourceKind) OnDevice() bool {
	return k != SourceNode
}

// Object returns the kind of the objects in the API, such as DeviceTaintRule.
func (k SourceKind) Object() string {
	switch k {
	case SourceNode:
		return "Node"
	case SourceSlice:
		return "ResourceSlice"
	case SourceRule:
		return "DeviceTaintRule"
	case SourcePatch:
		return "ResourceSlicePatch"
	}
	return string(k)
}

// Source is the object that carries a taint.
type Source struct {
	Kind SourceKind
	Name string
	// UID tells a rule or a patch from one that was created anew under its name (DE-75).
	// It is empty for all other kinds.
	UID types.UID
}

// Named returns the source without its UID: the object of that kind and name, whichever it is.
func (s Source) Named() Source { return Source{Kind: s.Kind, Name: s.Name} }

// Taint is a taint and the time from which it counts.
type Taint struct {
	Key    string
	Value  string
	Effect corev1.TaintEffect
	// TimeAdded is the time from which the taint counts. It is never zero.
	TimeAdded time.Time
	// Stamped is true when TimeAdded stands in the object, in whole seconds. When
	// false, TimeAdded is the time at which the taint was first seen here.
	Stamped bool
	// Seen is when the taint was first seen here.
	Seen time.Time
	// Witnessed is true when its object was known before without the taint, so
	// that the taint can hardly be older than Seen. It is never true for slices: their
	// taints move from one object to another.
	Witnessed bool
	// Changed is when the taint was last seen to appear or to reach further than
	// before: with another value or an earlier time or, of a rule, another key or
	// selector, or from another effect. It is zero when that was never seen.
	Changed time.Time
	Source  Source
	// Patch is the ResourceSlicePatch that the source is written out for; zero for none.
	Patch PatchRef
}

// Author returns the object in which a user wrote the taint: the patch of a rule that
// is written out for one, else the source.
func (t Taint) Author() Source {
	if t.Patch != (PatchRef{}) {
		return t.Patch.Source()
	}
	return t.Source
}

// From reports whether a taint comes from an object with that kind and name: the one that
// carries it, or the patch that this one is written out for. UIDs do not matter.
func (t Taint) From(kind SourceKind, name string) bool {
	named := Source{Kind: kind, Name: name}
	return t.Source.Named() == named || t.Author().Named() == named
}

// Appeared returns when the taint was written so that it hits what it hits now, as
// far as that can be told. A time that a user set back does not make it older.
func (t Taint) Appeared() time.Time {
	if t.Changed.After(t.TimeAdded) {
		return t.Changed
	}
	return t.TimeAdded
}

// Written returns when the taint was written so that it hits what it hits now, as far
// as can be told at now. It differs from Appeared for the taint of a device that is to
// count from a later time on.
func (t Taint) Written(now time.Time) time.Time {
	at := t.Appeared()
	if at.After(now) {
		at = cmp.Or(t.Changed, t.Seen)
	}
	if at.After(now) {
		return now
	}
	return at
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	return s + ":" + string(t.Effect)
}

// Native returns the taint as a node has it.
func (t Taint) Native() corev1.Taint {
	native := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
	if t.Stamped {
		native.TimeAdded = new(metav1.NewTime(t.TimeAdded))
	}
	return native
}

// sameEffect reports whether both taints lead to the same decisions. Seen is left
// out: it does not change while a taint stays.
func sameEffect(a, b Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect &&
		a.TimeAdded.Equal(b.TimeAdded) && a.Stamped == b.Stamped && a.Source == b.Source && a.Patch == b.Patch
}

// merge returns the NoExecute taints among the specs of a node, dated. The
// taints known until now are prior; witnessed says that the node was known.
// A taint without a time keeps the time that its key and effect had before, even
// when its value changes: the API allows one taint for each key and effect, and
// an update that merely forgets the time must not start the clock again.
func merge(specs []corev1.Taint, prior []Taint, witnessed bool, source Source, now time.Time) []Taint {
	var merged []Taint
	for _, spec := range specs {
		if spec.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		taint := dated(resourcev1.DeviceTaint{
			Key: spec.Key, Value: spec.Value, Effect: resourcev1.DeviceTaintEffect(spec.Effect), TimeAdded: spec.TimeAdded,
		}, source, now)
		taint.Witnessed = witnessed
		changed := witnessed
		if i := slices.IndexFunc(prior, func(t Taint) bool { return t.Key == spec.Key && t.Effect == spec.Effect }); i >= 0 {
			old := prior[i]
			taint.Seen, taint.Witnessed, taint.Changed = old.Seen, old.Witnessed, old.Changed
			if !taint.Stamped {
				taint.TimeAdded = old.TimeAdded
			}
			changed = taint.Value != old.Value || taint.TimeAdded.Before(old.TimeAdded)
		}
		if changed {
			taint.Changed = now
		}
		merged = append(merged, taint)
	}
	return merged
}
