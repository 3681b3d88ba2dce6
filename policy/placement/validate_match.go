package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxNamespaces = 256
	maxMatchItems = 64
)

func matchPath() *field.Path { return field.NewPath("spec", "match") }

func validateMatch(m *v1alpha1.PlacementMatch, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !named(m) {
		errs = append(errs, field.Required(path, `a policy names who it is for: set namespaces (["*"] is every one), a namespaceSelector `+
			"that is not empty, resources, deviceClasses or matchConditions; podSelector only narrows, because users set the labels of their pods"))
	}
	errs = append(errs, validateNamespaces(m.Namespaces, path.Child("namespaces"))...)
	errs = append(errs, validateSelector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(m.PodSelector, path.Child("podSelector"))...)
	errs = append(errs, validateResources(m.Resources, path.Child("resources"))...)
	errs = append(errs, validateClasses(m.DeviceClasses, path.Child("deviceClasses"))...)
	if len(m.MatchConditions) > 0 {
		errs = append(errs, cel.ValidateConditions(cel.OfRequest, m.MatchConditions, path.Child("matchConditions"))...)
	}
	return errs
}

// named reports whether the match says who it is for. A selector without
// requirements does not: it is what is left of one that was misspelt.
func named(m *v1alpha1.PlacementMatch) bool {
	selects := m.NamespaceSelector != nil && len(m.NamespaceSelector.MatchLabels)+len(m.NamespaceSelector.MatchExpressions) > 0
	return selects || len(m.Namespaces)+len(m.Resources)+len(m.DeviceClasses)+len(m.MatchConditions) > 0
}

// readable returns what can be read of a match that is in store, and whether that is
// the whole of it and names anybody. Conditions are not looked at: they say themselves
// when they are asked that they cannot be read.
func readable(in *v1alpha1.PlacementMatch) (m v1alpha1.PlacementMatch, whole bool) {
	m, whole = *in, named(in)
	for _, selector := range []**metav1.LabelSelector{&m.NamespaceSelector, &m.PodSelector} {
		if *selector == nil {
			continue
		}
		if _, err := metav1.LabelSelectorAsSelector(*selector); err != nil {
			*selector, whole = nil, false
		}
	}
	return m, whole
}

func validateNamespaces(patterns []string, path *field.Path) field.ErrorList {
	errs := selector.ValidateList(patterns, maxNamespaces, path)
	for i, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		var reasons []string
		switch {
		case pattern == "*":
		case open:
			// What a name can begin with may end with a hyphen.
			reasons = apivalidation.NameIsDNSLabel(prefix, true)
		default:
			reasons = apivalidation.ValidateNamespaceName(pattern, false)
		}
		if len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), pattern, strings.Join(reasons, "; ")))
		}
	}
	return errs
}

func validateSelector(in *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	return metav1validation.ValidateLabelSelector(in, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateResources(names []string, path *field.Path) field.ErrorList {
	errs := selector.ValidateList(names, maxMatchItems, path)
	for i, name := range names {
		if reasons := validation.IsQualifiedName(name); len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), name, strings.Join(reasons, "; ")))
		}
	}
	return errs
}

func validateClasses(names []string, path *field.Path) field.ErrorList {
	errs := selector.ValidateList(names, maxMatchItems, path)
	for i, name := range names {
		if reasons := apivalidation.NameIsDNSSubdomain(name, false); len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), name, strings.Join(reasons, "; ")))
		}
	}
	return errs
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
