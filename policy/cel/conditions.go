package cel

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxConditions is the number of matchConditions that one policy may have, as
// upstream has it.
const maxConditions = 64

// Conditions are compiled matchConditions. The zero Conditions hold.
type Conditions struct {
	conditions []condition
	uses       Uses
}

// condition has either a program or the failure of its expression.
type condition struct {
	name    string
	program *Program
	failure error
}

// CompileConditions compiles matchConditions. Those with a fault (ValidateConditions)
// never hold as false: a condition that cannot be read does not switch a policy off.
// They fail when they are evaluated.
func CompileConditions(conditions []admissionregistrationv1.MatchCondition) Conditions {
	var c Conditions
	for i := range conditions {
		program, err := Compile(OfRequest, conditions[i].Expression, Bool)
		if err != nil {
			err = &FailedError{"does not compile: " + err.Error()}
		} else {
			c.uses = c.uses.with(program.uses)
		}
		c.conditions = append(c.conditions, condition{conditions[i].Name, program, err})
	}
	return c
}

// Empty reports whether there are no conditions.
func (c Conditions) Empty() bool { return len(c.conditions) == 0 }

// Uses returns what the conditions read.
func (c Conditions) Uses() Uses { return c.uses }

// Match reports whether all conditions hold. One that is false decides, whatever
// the others; without one, a condition that fails is a *FailedError, as in a
// ValidatingAdmissionPolicy, and so is one that does not compile. A fault from
// outside counts for more than a failure, and ends the review.
func (c Conditions) Match(ctx context.Context, review *Review) (bool, error) {
	var fault, failure error
	for i := range c.conditions {
		one := &c.conditions[i]
		holds, err := false, one.failure
		if err == nil {
			holds, err = one.program.Bool(ctx, review, nil)
		}
		switch failed := (*FailedError)(nil); {
		case err == nil && !holds:
			return false, nil
		case errors.As(err, &failed):
			err = &FailedError{"the condition " + strconv.Quote(one.name) + ": " + failed.Problem}
			failure = cmp.Or(failure, err)
		default:
			fault = cmp.Or(fault, err)
		}
	}
	err := cmp.Or(fault, failure)
	return err == nil, err
}

// ValidateConditions returns the errors of matchConditions: names, and
// expressions that do not compile, with the position.
func ValidateConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxConditions {
		return append(errs, field.TooMany(path, len(conditions), maxConditions))
	}
	names := sets.New[string]()
	for i := range conditions {
		at, name := path.Index(i), conditions[i].Name
		switch problems := validation.IsQualifiedName(name); {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), "conditions are told by their names"))
		case names.Has(name):
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		case len(problems) > 0:
			errs = append(errs, field.Invalid(at.Child("name"), name, strings.Join(problems, "; ")))
		}
		names.Insert(name)
		errs = append(errs, Validate(OfRequest, conditions[i].Expression, Bool, at.Child("expression"))...)
	}
	return errs
}

// Validate returns the errors of one expression that is being written.
func Validate(place Place, text string, result Type, path *field.Path) field.ErrorList {
	if strings.TrimSpace(text) == "" {
		return field.ErrorList{field.Required(path, "a CEL expression")}
	}
	if len(text) > maxLength {
		return field.ErrorList{field.TooLong(path, "", maxLength)}
	}
	if _, err := compile(environments()[place].NewExpressionsEnv(), text, result); err != nil {
		return field.ErrorList{field.Invalid(path, short(text), err.Error())}
	}
	return nil
}
