package policy

import (
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
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
