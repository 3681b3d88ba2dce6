package tracker

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SourceKind says what kind of object a taint comes from.
type SourceKind string

// The kinds of objects that carry taints. The values are metric labels.
const (
	SourceNode  SourceKind = "node"
	SourceSlice SourceKind = "resourceslice"
	SourceRule  SourceKind = "devicetaintrule"
)

// OnDevice reports whether objects of that kind taint devices.
func (k SourceKind) OnDevice() bool {
	return k != SourceNode
}

// Source is the object that carries a taint.
type Source struct {
	Kind SourceKind
	Name string
	// UID tells a rule from one that was created anew under its name (DE-75). It is
	// empty for all other kinds.
	UID types.UID
}

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
	Source    Source
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	return s + ":" + string(t.Effect)
}

// sameEffect reports whether both taints lead to the same decisions. Seen is left
// out: it does not change while a taint stays.
func sameEffect(a, b Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect &&
		a.TimeAdded.Equal(b.TimeAdded) && a.Stamped == b.Stamped && a.Source == b.Source
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
		taint := Taint{
			Key: spec.Key, Value: spec.Value, Effect: spec.Effect,
			TimeAdded: now, Seen: now, Witnessed: witnessed, Source: source,
		}
		if old, ok := find(prior, spec.Key, spec.Effect); ok {
			taint.TimeAdded, taint.Seen, taint.Witnessed = old.TimeAdded, old.Seen, old.Witnessed
		}
		if spec.TimeAdded != nil && !spec.TimeAdded.IsZero() {
			taint.TimeAdded, taint.Stamped = spec.TimeAdded.Time, true
		}
		merged = append(merged, taint)
	}
	return merged
}

func find(taints []Taint, key string, effect corev1.TaintEffect) (Taint, bool) {
	for _, t := range taints {
		if t.Key == key && t.Effect == effect {
			return t, true
		}
	}
	return Taint{}, false
}
