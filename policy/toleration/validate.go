package toleration

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

// ValidateTolerations returns what is wrong with the tolerations of a pod by the
// rules of Kubernetes (AV-23 to AV-25 and, with those it had before, AV-27 and
// AV-28), at the paths and with the types that the API server uses. It knows no
// limit on their number (AV-29).
//
// An operator or an effect that this version does not know is left to the API
// server, which may be newer, and so is whether Lt and Gt are enabled: that is a
// feature gate of the API server. What is wrong with the rest of such a
// toleration is still found.
func ValidateTolerations(current, old []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !keepsAll(current, old) {
		errs = append(errs, field.Forbidden(path, "tolerations that a pod has stay as they are: only tolerationSeconds may change, and others may be added"))
	}
	for i := range current {
		errs = append(errs, validateToleration(&current[i], path.Index(i))...)
	}
	return errs
}

func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	read := selector.OfPod(t)
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute && (t.Effect == "" || read.KnownEffect()) {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "tolerationSeconds needs effect NoExecute"))
	}
	return append(errs, validateValue(t, &read, path)...)
}

// validateValue checks the value, and whether the operator can do without a key.
func validateValue(t *corev1.Toleration, read *selector.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operator := path.Child("operator")
	switch read.Operator {
	case corev1.TolerationOpEqual:
		errs = append(errs, needsKey(t, operator)...)
		if reasons := validation.IsValidLabelValue(t.Value); len(reasons) > 0 {
			errs = append(errs, field.Invalid(operator, t.Value, strings.Join(reasons, "; ")))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(operator, t.Value, "operator Exists takes no value"))
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		errs = append(errs, needsKey(t, operator)...)
		if _, ok := read.Number(); !ok {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be a whole number within 64 bits, without leading zeros, plus sign or spaces"))
		}
	default:
	}
	return errs
}

func needsKey(t *corev1.Toleration, operator *field.Path) field.ErrorList {
	if t.Key != "" {
		return nil
	}
	return field.ErrorList{field.Invalid(operator, t.Operator, "without a key the operator must be Exists, which tolerates every taint")}
}

// constant is what of a toleration may not change.
type constant struct {
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
}

// keepsAll reports whether every old toleration is still there but for its
// seconds. Only presence counts (AV-28): order may change, and two that differ in
// seconds alone may become one. Fields are compared as written, as the API server
// does, so an empty operator is not Equal here.
func keepsAll(current, old []corev1.Toleration) bool {
	if len(old) == 0 {
		return true
	}
	kept := make(map[constant]struct{}, len(current))
	for i := range current {
		kept[constantOf(&current[i])] = struct{}{}
	}
	for i := range old {
		if _, ok := kept[constantOf(&old[i])]; !ok {
			return false
		}
	}
	return true
}

func constantOf(t *corev1.Toleration) constant {
	return constant{key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect}
}
