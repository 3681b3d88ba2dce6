package tolerations

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func validateGrants(grants []v1alpha1.TolerationGrant, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(grants) > maxGrants {
		errs = append(errs, field.TooMany(path, len(grants), maxGrants))
	}
	for i := range grants {
		errs = append(errs, validateGrant(&grants[i], path.Index(i))...)
	}
	return errs
}

// validateGrant returns what is wrong with a grant. Compile leaves out a grant
// with any error, so what is missing here would widen.
func validateGrant(g *v1alpha1.TolerationGrant, path *field.Path) field.ErrorList {
	const instead = "grant to namespaces or to a namespaceSelector"
	var errs field.ErrorList
	if g.ObjectSelector != nil {
		errs = append(errs, notEvaluated(path.Child("objectSelector"), instead))
	}
	if len(g.Subjects) > 0 {
		errs = append(errs, notEvaluated(path.Child("subjects"), instead))
	}
	if g.RBAC {
		errs = append(errs, notEvaluated(path.Child("rbac"), instead))
	}
	if g.Expression != "" {
		errs = append(errs, notEvaluated(path.Child("expression"), instead))
	}
	if len(errs) == 0 && len(g.Namespaces) == 0 && g.NamespaceSelector == nil {
		errs = append(errs, field.Required(path, "a grant names who it is for: set namespaces or namespaceSelector"))
	}
	errs = append(errs, validateNamespaces(g.Namespaces, path.Child("namespaces"))...)
	errs = append(errs, validateNamespaceSelector(g.NamespaceSelector, path.Child("namespaceSelector"))...)
	if g.MaxTolerationSeconds != nil && *g.MaxTolerationSeconds < 0 {
		errs = append(errs, field.Invalid(path.Child("maxTolerationSeconds"), *g.MaxTolerationSeconds, "must not be negative"))
	}
	return errs
}

func validateNamespaces(namespaces []string, path *field.Path) field.ErrorList {
	errs := validateList(namespaces, maxNamespaces, path)
	for i, pattern := range namespaces {
		name, open := strings.CutSuffix(pattern, "*")
		if open && name == "" {
			continue
		}
		errs = append(errs, invalid(path.Index(i), pattern, apivalidation.NameIsDNSLabel(name, open), `a namespace, a prefix and "*", or "*": `)...)
	}
	return errs
}

func validateNamespaceSelector(sel *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if sel == nil {
		return nil
	}
	if len(sel.MatchLabels) == 0 && len(sel.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(path, `an empty selector selects every namespace; name a label, or use namespaces: ["*"]`)}
	}
	errs := metav1validation.ValidateLabelSelector(sel, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) == 0 {
		if _, err := metav1.LabelSelectorAsSelector(sel); err != nil {
			errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(sel), err.Error()))
		}
	}
	return errs
}
