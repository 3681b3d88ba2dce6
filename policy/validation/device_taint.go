package validation

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// effects are the effects that are known here (AV-03).
var effects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute,
	resourcev1.DeviceTaintEffectNoSchedule,
	resourcev1.DeviceTaintEffectNone,
}

func isKnown(effect resourcev1.DeviceTaintEffect) bool {
	return slices.Contains(effects, effect)
}

// deviceValidateTaint reports what is wrong with a taint (AV-03). An effect that is not
// known here is left to the API server, which may be newer: whoever reads taints
// takes such a one for None, as KEP-5055 says.
func deviceValidateTaint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), "a taint needs a key"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	errs = append(errs, validateLabelValue(t.Value, path.Child("value"))...)
	if t.Effect == "" {
		errs = append(errs, field.Required(path.Child("effect"), "give one of None, NoSchedule and NoExecute"))
	}
	return errs
}

func validateLabelValue(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsValidLabelValue(value) {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}

// mark is what tells a taint from others on the same device, as far as one can be
// told: nothing is unique.
type mark struct {
	key, value string
	effect     resourcev1.DeviceTaintEffect
}

func markOf(t *resourcev1.DeviceTaint) mark {
	return mark{t.Key, t.Value, t.Effect}
}

// deviceStamp is a taint as the API server stores it: its time, if any, in whole seconds.
type deviceStamp struct {
	mark

	seconds int64
	timed   bool
}

func deviceStampOf(t *resourcev1.DeviceTaint) deviceStamp {
	s := deviceStamp{mark: markOf(t)}
	if at, ok := deviceTimeOf(t); ok {
		s.seconds, s.timed = at.Unix(), true
	}
	return s
}

// deviceTimeOf returns the time of t in whole seconds, which is all that the API stores,
// and whether it has one. The zero time is none: it is written as null.
func deviceTimeOf(t *resourcev1.DeviceTaint) (time.Time, bool) {
	if t.TimeAdded.IsZero() {
		return time.Time{}, false
	}
	return t.TimeAdded.Truncate(time.Second), true
}

// equal reports whether two lists hold the same taints in the same order.
func equal(a, b []resourcev1.DeviceTaint) bool {
	return slices.EqualFunc(a, b, func(a, b resourcev1.DeviceTaint) bool { return deviceStampOf(&a) == deviceStampOf(&b) })
}
