package validation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// restampWindow is the distance from now within which the time of a taint is taken for the
// clock of a client that means "now" rather than for a chosen time. The API server fills in
// such a time where a client gives none for the taint of a device.
const restampWindow = 5 * time.Second

// taint is a taint of a node or of a device as the API server stores it.
type taint struct {
	key, value, effect string
	added              time.Time // zero for none
	ofDevice           bool
}

func nodeTaint(t *corev1.Taint) taint {
	return taint{key: t.Key, value: t.Value, effect: string(t.Effect), added: Stored(t.TimeAdded)}
}

func deviceTaint(t *resourcev1.DeviceTaint) taint {
	return taint{key: t.Key, value: t.Value, effect: string(t.Effect), added: Stored(t.TimeAdded), ofDevice: true}
}

// identity tells a taint from the others of the same node or device. A node has one taint of
// each key and effect, and value is empty. Nothing is unique among the taints of a device.
type identity struct{ key, value, effect string }

func (t taint) identity() identity {
	if t.ofDevice {
		return identity{t.key, t.value, t.effect}
	}
	return identity{key: t.key, effect: t.effect}
}

// Stored returns a time as the API server stores it, in whole seconds and in a form that can be
// compared. The zero time is none: it is written as null.
func Stored(added *metav1.Time) time.Time {
	if added.IsZero() {
		return time.Time{}
	}
	return time.Unix(added.Unix(), 0).UTC()
}

// earliest returns the earliest of the times that are set, or the zero time.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// existing holds the taints that a node or a device had before the request.
type existing struct {
	taints sets.Set[taint]
	// since is the earliest time of each identity that has one.
	since map[identity]time.Time
}

func existingOf[T any](old []T, read func(*T) taint) existing {
	e := existing{taints: make(sets.Set[taint], len(old)), since: make(map[identity]time.Time, len(old))}
	for i := range old {
		t := read(&old[i])
		e.taints.Insert(t)
		if !t.added.IsZero() {
			e.since[t.identity()] = earliest(e.since[t.identity()], t.added)
		}
	}
	return e
}

// validateTaint returns the errors of the parts of a taint. An unknown effect is left to the
// API server, which may be newer.
func validateTaint(t taint, effects string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.key == "" {
		errs = append(errs, field.Required(path.Child("key"), "a taint needs a key"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(t.key, path.Child("key"))...)
	}
	errs = append(errs, validateLabelValue(t.value, path.Child("value"))...)
	if t.effect == "" {
		errs = append(errs, field.Required(path.Child("effect"), "give one of "+effects))
	}
	return errs
}

func validateLabelValue(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, "", validation.IsValidLabelValue(value))
}

// Invalid returns an error for each problem of a value, with a text before it.
func Invalid(path *field.Path, value, prefix string, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, prefix+problem))
	}
	return errs
}
