package policy

import (
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// ValidateEach returns the errors of a list with at most a number of items, and of each item.
func ValidateEach[T any](list []T, most int, path *field.Path, validate func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	if len(list) > most {
		errs = append(errs, field.TooMany(path, len(list), most))
	}
	for i := range list {
		errs = append(errs, validate(&list[i], path.Index(i))...)
	}
	return errs
}

// Check returns an error unless a value is right. The error is made in any case, so it is for what is
// validated when a policy is written, and not for each request.
func Check(right bool, err *field.Error) field.ErrorList {
	if right {
		return nil
	}
	return field.ErrorList{err}
}

// ValidateEnum returns the error of a value that is not among the known ones.
func ValidateEnum[T ~string](value T, path *field.Path, known []T) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, known)}
}

// maxMessage is the limit of the schema on the message of a policy.
const maxMessage = 1024

// ValidateMessage returns the faults of the message of a policy.
func ValidateMessage(message string, path *field.Path) field.ErrorList {
	switch {
	case utf8.RuneCountInString(message) > maxMessage:
		return field.ErrorList{field.TooLongCharacters(path, message, maxMessage)}
	case strings.ContainsFunc(strings.TrimSpace(message), Unprintable):
		return field.ErrorList{field.Invalid(path, message, "must be one line, without control characters")}
	default:
		return nil
	}
}

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
