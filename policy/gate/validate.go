package gate

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxGates         = 64
	maxOwners        = 256
	maxMessageLength = 1024
)

// ValidatePolicy returns what is wrong with the policy. A policy without errors is
// in force to the letter.
func ValidatePolicy(p *v1alpha1.GatePolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateGates(p.Spec.Gates, spec.Child("gates"))
	owners := spec.Child("owners")
	if len(p.Spec.Owners) > maxOwners {
		errs = append(errs, field.TooMany(owners, len(p.Spec.Owners), maxOwners))
	}
	errs = append(errs, policy.ValidateSubjects(p.Spec.Owners, owners)...)
	errs = append(errs, policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions"))...)
	return append(errs, validateMessage(p.Spec.Message, spec.Child("message"))...)
}

func validateGates(gates []string, path *field.Path) field.ErrorList {
	if len(gates) == 0 {
		return field.ErrorList{field.Required(path, "a policy guards at least one gate")}
	}
	errs := validateSet(gates, maxGates, path)
	for i, gate := range gates {
		if problems := validateGate(gate); len(problems) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), gate, strings.Join(problems, "; ")))
		}
	}
	return errs
}

// validateGate holds a name to what Kubernetes asks of gates (SD-01).
func validateGate(gate string) []string {
	prefix, pattern := strings.CutSuffix(gate, anyBelow)
	switch {
	case pattern:
		return validation.IsDNS1123Subdomain(prefix)
	case strings.Contains(gate, "*"):
		return []string{`name a gate, or all gates below a prefix as "prefix/*"`}
	default:
		return validation.IsQualifiedName(gate)
	}
}

func validateMessage(message string, path *field.Path) field.ErrorList {
	switch {
	case utf8.RuneCountInString(message) > maxMessageLength:
		return field.ErrorList{field.TooLongCharacters(path, message, maxMessageLength)}
	case strings.ContainsFunc(strings.TrimSpace(message), policy.Unprintable):
		return field.ErrorList{field.Invalid(path, message, "must be one line, without control characters")}
	default:
		return nil
	}
}

// validateSet checks that a list that is a set is one, and not too long.
func validateSet[T ~string](items []T, most int, path *field.Path) field.ErrorList {
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
