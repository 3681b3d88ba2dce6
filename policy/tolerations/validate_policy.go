package tolerations

import (
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxTaints     = 64
	maxValues     = 64
	maxGrants     = 64
	maxNamespaces = 256
	maxMessage    = 1024
)

// ValidatePolicy returns what is wrong with the policy: what its schema cannot
// say, what the schema says and an object in store may still not obey, and
// everything that this version would not evaluate. A policy without errors is in
// force to the letter.
func ValidatePolicy(p *v1alpha1.TolerationPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateTaints(p.Spec.Taints, spec.Child("taints"))
	errs = append(errs, validateGrants(p.Spec.Grants, spec.Child("grants"))...)
	if len(p.Spec.MatchConditions) > 0 {
		errs = append(errs, notEvaluated(spec.Child("matchConditions"), "say with taints what the policy guards and with grants who may tolerate it"))
	}
	errs = append(errs, validateActions(p.Spec.ValidationActions, spec.Child("validationActions"))...)
	errs = append(errs, validateMessage(p.Spec.Message, spec.Child("message"))...)
	if p.Spec.MessageExpression != "" {
		errs = append(errs, notEvaluated(spec.Child("messageExpression"), "use message"))
	}
	return errs
}

// notEvaluated is the error for a part of the type that this version would
// ignore. To accept it would let its author believe that it holds.
func notEvaluated(path *field.Path, instead string) *field.Error {
	return field.Forbidden(path, "is not evaluated by this version of Tollgate; "+instead)
}

func validateTaints(taints []v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
	if len(taints) == 0 {
		return field.ErrorList{field.Required(path, "a policy guards at least one taint")}
	}
	var errs field.ErrorList
	if len(taints) > maxTaints {
		errs = append(errs, field.TooMany(path, len(taints), maxTaints))
	}
	for i := range taints {
		errs = append(errs, validateSelector(&taints[i], path.Index(i))...)
	}
	return errs
}

func validateSelector(sel *v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	var errs field.ErrorList
	switch sel.Target {
	case v1alpha1.TaintTargetNode, "":
		if len(sel.DeviceClasses) > 0 {
			errs = append(errs, field.Forbidden(path.Child("deviceClasses"), "narrows taints of devices, not of nodes; remove it"))
		}
	case v1alpha1.TaintTargetDevice:
		effects = []corev1.TaintEffect{"None", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
		errs = append(errs, notEvaluated(path.Child("target"), "only taints of nodes (target Node) can be guarded"))
		if len(sel.DeviceClasses) > 0 {
			errs = append(errs, notEvaluated(path.Child("deviceClasses"), "only taints of nodes can be guarded"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("target"), sel.Target, []v1alpha1.TaintTarget{v1alpha1.TaintTargetNode}))
	}
	if len(sel.Drivers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("drivers"), "selects who sets a taint of a device, and tolerations do not name drivers; remove it"))
	}
	errs = append(errs, validateKey(sel.Key, path.Child("key"))...)
	errs = append(errs, validateValues(sel.Values, path.Child("values"))...)
	return append(errs, validateEffects(sel.Effects, effects, path.Child("effects"))...)
}

func validateKey(key string, path *field.Path) field.ErrorList {
	prefix, pattern := strings.CutSuffix(key, "/*")
	switch {
	case key == "":
		return field.ErrorList{field.Required(path, `a taint key, "prefix/*" or "*"`)}
	case key == "*":
		return nil
	case pattern:
		return invalid(path, key, validation.IsDNS1123Subdomain(prefix), "the prefix ")
	case strings.Contains(key, "*"):
		return field.ErrorList{field.Invalid(path, key, `a pattern is "prefix/*" or "*"`)}
	default:
		return metav1validation.ValidateLabelName(key, path)
	}
}

func validateValues(values []string, path *field.Path) field.ErrorList {
	errs := validateList(values, maxValues, path)
	for i, value := range values {
		errs = append(errs, invalid(path.Index(i), value, validation.IsValidLabelValue(value), "")...)
	}
	return errs
}

func validateEffects(effects, allowed []corev1.TaintEffect, path *field.Path) field.ErrorList {
	errs := validateList(effects, maxValues, path)
	for i, effect := range effects {
		if !slices.Contains(allowed, effect) {
			errs = append(errs, field.NotSupported(path.Index(i), effect, allowed))
		}
	}
	return errs
}

func validateActions(actions []v1alpha1.ValidationAction, path *field.Path) field.ErrorList {
	known := []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit}
	errs := validateList(actions, len(known), path)
	for i, action := range actions {
		if !knownAction(action) {
			errs = append(errs, field.NotSupported(path.Index(i), action, known))
		}
	}
	if slices.Contains(actions, v1alpha1.Deny) && slices.Contains(actions, v1alpha1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "Deny and Warn exclude each other: the client would be told twice"))
	}
	return errs
}

func knownAction(action v1alpha1.ValidationAction) bool {
	switch action {
	case v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit:
		return true
	default:
		return false
	}
}

func validateMessage(message string, path *field.Path) field.ErrorList {
	switch {
	case utf8.RuneCountInString(message) > maxMessage:
		return field.ErrorList{field.TooLongCharacters(path, message, maxMessage)}
	case strings.ContainsFunc(strings.TrimSpace(message), unprintable):
		return field.ErrorList{field.Invalid(path, message, "must be one line, without control characters")}
	default:
		return nil
	}
}

// validateList checks that a list that is a set is one, and not too long.
func validateList[T ~string](items []T, most int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(items) > most {
		errs = append(errs, field.TooMany(path, len(items), most))
	}
	seen := make(map[T]struct{}, len(items))
	for i, item := range items {
		if _, ok := seen[item]; ok {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
		seen[item] = struct{}{}
	}
	return errs
}

func invalid(path *field.Path, value string, reasons []string, what string) field.ErrorList {
	if len(reasons) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, what+strings.Join(reasons, "; "))}
}
