package toleration

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxGrants     = 64
	maxNamespaces = 256
	maxSubjects   = 256
)

// ValidatePolicy returns what is wrong with the policy: what its schema cannot say,
// and what the schema says and an object in store may still not obey. A policy
// without errors is in force to the letter.
func ValidatePolicy(p *v1alpha1.TolerationPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateRest(p, spec)
	if text := p.Spec.MessageExpression; text != "" {
		errs = append(errs, cel.Validate(cel.OfToleration, text, cel.String, spec.Child("messageExpression"))...)
	}
	for i := range p.Spec.Grants {
		g, path := &p.Spec.Grants[i], spec.Child("grants").Index(i)
		errs = append(errs, validateGrant(g, path)...)
		if g.Expression != "" {
			errs = append(errs, cel.Validate(cel.OfToleration, g.Expression, cel.Bool, path.Child("expression"))...)
		}
	}
	return errs
}

// validateRest returns what is wrong with the policy but for single grants and the
// expression of the message.
func validateRest(p *v1alpha1.TolerationPolicy, spec *field.Path) field.ErrorList {
	errs := selector.ValidateAll(p.Spec.Taints, spec.Child("taints"), selector.Tolerations)
	if len(p.Spec.Grants) > maxGrants {
		errs = append(errs, field.TooMany(spec.Child("grants"), len(p.Spec.Grants), maxGrants))
	}
	if len(p.Spec.MatchConditions) > 0 {
		errs = append(errs, cel.ValidateConditions(cel.OfRequest, p.Spec.MatchConditions, spec.Child("matchConditions"))...)
	}
	errs = append(errs, policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions"))...)
	return append(errs, policy.ValidateMessage(p.Spec.Message, spec.Child("message"))...)
}

// validateGrant returns what is wrong with a grant but for its expression. A grant
// with any error is left out, so what is missing here would widen.
func validateGrant(g *v1alpha1.TolerationGrant, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(g.Namespaces) == 0 && g.NamespaceSelector == nil && len(g.Subjects) == 0 && !g.RBAC && g.Expression == "" {
		errs = append(errs, field.Required(path, "a grant names who it is for: set namespaces, namespaceSelector, subjects, rbac or expression"))
	}
	errs = append(errs, validateNamespaces(g.Namespaces, path.Child("namespaces"))...)
	errs = append(errs, validateLabelSelector(g.NamespaceSelector, path.Child("namespaceSelector"), `an empty selector selects every namespace; name a label, or use namespaces: ["*"]`)...)
	errs = append(errs, validateLabelSelector(g.ObjectSelector, path.Child("objectSelector"), "an empty selector selects every object; name a label, or leave it out")...)
	if len(g.Subjects) > maxSubjects {
		errs = append(errs, field.TooMany(path.Child("subjects"), len(g.Subjects), maxSubjects))
	}
	errs = append(errs, policy.ValidateSubjects(g.Subjects, path.Child("subjects"))...)
	if g.MaxTolerationSeconds != nil && *g.MaxTolerationSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("maxTolerationSeconds"), *g.MaxTolerationSeconds, "must not be negative"))
	}
	return errs
}

func validateNamespaces(namespaces []string, path *field.Path) field.ErrorList {
	errs := selector.ValidateList(namespaces, maxNamespaces, path)
	for i, pattern := range namespaces {
		name, open := strings.CutSuffix(pattern, "*")
		if open && name == "" {
			continue
		}
		if reasons := apivalidation.NameIsDNSLabel(name, open); len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), pattern, `a namespace, a prefix and "*", or "*": `+strings.Join(reasons, "; ")))
		}
	}
	return errs
}

// validateLabelSelector returns what is wrong with a selector; empty says why it must
// not be empty.
func validateLabelSelector(sel *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	if sel == nil {
		return nil
	}
	if len(sel.MatchLabels) == 0 && len(sel.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(path, empty)}
	}
	errs := metav1validation.ValidateLabelSelector(sel, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) == 0 {
		if _, err := metav1.LabelSelectorAsSelector(sel); err != nil {
			errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(sel), err.Error()))
		}
	}
	return errs
}
