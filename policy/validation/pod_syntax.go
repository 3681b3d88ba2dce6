package validation

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// labelValuesAreStrict reports how strictly an update of spec is judged: older API
// servers stored required terms with values that no label can have, and a pod that
// has one such value may keep it, and bring others (SD-13).
func labelValuesAreStrict(spec *corev1.PodSpec) bool {
	for _, term := range requiredTerms(spec.Affinity) {
		for _, requirement := range term.MatchExpressions {
			for _, value := range requirement.Values {
				if len(validation.IsValidLabelValue(value)) > 0 {
					return false
				}
			}
		}
	}
	return true
}

// validateSyntax judges the directives that an update may bring, each as it stands. Strict says
// that the values of required node affinity must be label values.
func validateSyntax(spec *corev1.PodSpec, strict bool) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		errs = append(errs, metavalidation.ValidateLabelName(key, nodeSelectorPath)...)
		errs = append(errs, validateLabelValue(spec.NodeSelector[key], nodeSelectorPath)...)
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		errs = append(errs, validateNodeAffinity(spec.Affinity.NodeAffinity, strict)...)
	}
	seen := make(sets.Set[string], len(spec.SchedulingGates))
	for i, gate := range spec.SchedulingGates {
		errs = append(errs, Invalid(gatesPath.Index(i), gate.Name, "", validation.IsQualifiedName(gate.Name))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(gatesPath.Index(i), gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}

func validateNodeAffinity(affinity *corev1.NodeAffinity, strict bool) field.ErrorList {
	var errs field.ErrorList
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := nodeAffinityPath.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(terms, "give at least one term, or leave out what is required"))
		}
		for i := range required.NodeSelectorTerms {
			errs = append(errs, validateTerm(&required.NodeSelectorTerms[i], strict, terms.Index(i))...)
		}
	}
	preferred := nodeAffinityPath.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		term := &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		if term.Weight < 1 || term.Weight > 100 {
			errs = append(errs, field.Invalid(preferred.Index(i).Child("weight"), term.Weight, "must be from 1 to 100"))
		}
		// A preference for a label value that cannot exist costs nothing but its effect.
		errs = append(errs, validateTerm(&term.Preference, false, preferred.Index(i).Child("preference"))...)
	}
	return errs
}

func validateTerm(term *corev1.NodeSelectorTerm, strict bool, path *field.Path) field.ErrorList {
	validate := func(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
		return validateExpression(r, strict, path)
	}
	return append(policy.ValidateEach(term.MatchExpressions, len(term.MatchExpressions), path.Child("matchExpressions"), validate),
		policy.ValidateEach(term.MatchFields, len(term.MatchFields), path.Child("matchFields"), validateFieldRequirement)...)
}

func validateExpression(r *corev1.NodeSelectorRequirement, strict bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "In and NotIn need at least one value"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "Exists and DoesNotExist take no values"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "Gt and Lt need exactly one value"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "is none of In, NotIn, Exists, DoesNotExist, Gt and Lt"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
	for i, value := range r.Values {
		if strict {
			errs = append(errs, validateLabelValue(value, values.Index(i))...)
		}
	}
	return errs
}

// validateFieldRequirement judges an entry of matchFields. The one field of a node
// that can be selected by is its name.
func validateFieldRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "is none of In and NotIn, which a field can be matched by"))
	} else if len(r.Values) != 1 {
		errs = append(errs, field.Required(path.Child("values"), "a field needs exactly one value"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "must be "+metav1.ObjectNameField))
	}
	for i, value := range r.Values {
		errs = append(errs, Invalid(path.Child("values").Index(i), value, "", apivalidation.NameIsDNSSubdomain(value, false))...)
	}
	return errs
}
