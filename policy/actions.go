package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

var knownActions = []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit}

// Actions returns the validation actions of a policy in a fixed order, or none, which is Deny,
// where one of them is unknown.
func Actions(actions []v1alpha1.ValidationAction) []v1alpha1.ValidationAction {
	if slices.ContainsFunc(actions, func(action v1alpha1.ValidationAction) bool { return !slices.Contains(knownActions, action) }) {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(actions)))
}

// ValidateActions returns the faults of the validation actions of a policy.
func ValidateActions(actions []v1alpha1.ValidationAction, path *field.Path) field.ErrorList {
	errs := Check(len(actions) <= len(knownActions), field.TooMany(path, len(actions), len(knownActions)))
	for i, action := range actions {
		if slices.Contains(actions[:i], action) {
			errs = append(errs, field.Duplicate(path.Index(i), action))
		}
		errs = append(errs, ValidateEnum(action, path.Index(i), knownActions)...)
	}
	return append(errs, Check(!slices.Contains(actions, v1alpha1.Deny) || !slices.Contains(actions, v1alpha1.Warn),
		field.Invalid(path, actions, "Deny and Warn exclude each other: the client would be told twice"))...)
}
