package policy

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxMessage is the limit of the schema on the message of a policy.
const maxMessage = 1024

// ValidateMessage returns what is wrong with the message of a policy.
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
