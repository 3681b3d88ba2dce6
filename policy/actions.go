package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Actions returns the validation actions of a policy in a fixed order, or none, which is Deny,
// where one of them is unknown.
func Actions(actions []v1alpha1.ValidationAction) []v1alpha1.ValidationAction {
	if !allKnown(actions) {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(actions)))
}

// ValidateActions returns the faults of the validation actions of a policy.
func ValidateActions(actions []v1alpha1.ValidationAction, path *field.Path) field.ErrorList {
	known := []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit}
	var errs field.ErrorList
	if len(actions) > len(known) {
		errs = append(errs, field.TooMany(path, len(actions), len(known)))
	}
	for i, action := range actions {
		if slices.Contains(actions[:i], action) {
			errs = append(errs, field.Duplicate(path.Index(i), action))
		}
		if !slices.Contains(known, action) {
			errs = append(errs, field.NotSupported(path.Index(i), action, known))
		}
	}
	if slices.Contains(actions, v1alpha1.Deny) && slices.Contains(actions, v1alpha1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "Deny and Warn exclude each other: the client would be told twice"))
	}
	return errs
}

func allKnown(actions []v1alpha1.ValidationAction) bool {
	for _, action := range actions {
		switch action {
		case v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit:
		default:
			return false
		}
	}
	return true
}
