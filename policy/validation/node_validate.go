package validation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateNode reports what is wrong with taints as those of a node that had old
// (none when it is created). What the request neither adds nor changes is not judged
// again. A time may be at most maxSkew ahead of now; a negative maxSkew allows any.
// The time of a taint is judged when it changes: it is no obstacle to a change of
// the value that such a time has stood there from before.
//
// Key and value must be those of a label, an effect must be there, and two taints
// must not have the same key and effect, as the API server has it (AV-21). An effect
// that is not known here is left to the API server, which may be newer.
//
// Paths begin with spec.taints, where a user finds the taint. The API server's begin
// with metadata.taints (AV-22), where it was in the days of annotations.
func ValidateNode(taints, old []corev1.Taint, now time.Time, maxSkew time.Duration) field.ErrorList {
	if unchanged(taints, old) {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "taints")
	before := standingOf(old)
	seen := make(map[pair]int, len(taints))
	for i := range taints {
		t := &taints[i]
		p := pairOf(t)
		if seen[p]++; seen[p] > max(1, before.count[p]) {
			err := field.Duplicate(path.Index(i), t.ToString())
			err.Detail = "another taint has this key and effect: a node has one of each"
			errs = append(errs, err)
		}
		if !before.has(t) {
			errs = append(errs, validateTaint(t, path.Index(i))...)
			errs = append(errs, validateTime(t, before, now, maxSkew, path.Index(i).Child("timeAdded"))...)
		}
	}
	return errs
}

// MaxNodeTaints is how many taints a node may have. Kubernetes has no limit of its own, and no node
// needs a hundredth of it: what a write of a node costs grows with their number.
const MaxNodeTaints = 1000

// ValidateNodeCount returns what is wrong with the number of a node's taints, which were old. A node
// that has too many may get rid of some.
func ValidateNodeCount(taints, old []corev1.Taint) field.ErrorList {
	if len(taints) <= MaxNodeTaints || len(taints) <= len(old) {
		return nil
	}
	return field.ErrorList{field.TooMany(field.NewPath("spec", "taints"), len(taints), MaxNodeTaints)}
}

func validateTaint(t *corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), "a taint needs a key"))
	} else {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	for _, problem := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, problem))
	}
	if t.Effect == "" {
		errs = append(errs, field.Required(path.Child("effect"), fmt.Sprintf("give one of %s, %s and %s",
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)))
	}
	return errs
}

func validateTime(t *corev1.Taint, before standing, now time.Time, maxSkew time.Duration, path *field.Path) field.ErrorList {
	at, ok := timeOf(t)
	if !ok || maxSkew < 0 || !at.After(now.Add(maxSkew)) || at.Equal(before.since[pairOf(t)]) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, at.UTC().Format(time.RFC3339), fmt.Sprintf(
		"is more than %s ahead of %s: leave it out to have it set to the present",
		maxSkew, now.UTC().Format(time.RFC3339)))}
}
