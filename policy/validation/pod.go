package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy"
)

// The fields of a pod that are judged. Most pods have no error in them, so their paths are made once.
var (
	specPath         = field.NewPath("spec")
	gatesPath        = specPath.Child("schedulingGates")
	nodeSelectorPath = specPath.Child("nodeSelector")
	nodeAffinityPath = specPath.Child("affinity", "nodeAffinity")
)

// ValidatePodCreate returns the errors of the scheduling gates, the node selector
// and the node affinity of a pod that is about to be created.
func ValidatePodCreate(spec *corev1.PodSpec) field.ErrorList {
	errs := validateSyntax(spec, true)
	if spec.NodeName != "" && len(spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("nodeName"),
			"a pod that is held by scheduling gates has no node yet: leave out one or the other"))
	}
	return errs
}

// ValidatePodUpdate returns the errors of the scheduling directives of a pod as an
// update of old. Changes to other fields are not looked at.
//
// Changes that Kubernetes allows to no pod are reported once, at spec, with the
// names of the fields in the text: the path is the API server's.
func ValidatePodUpdate(spec, old *corev1.PodSpec) field.ErrorList {
	errs := validateSyntax(spec, labelValuesAreStrict(old))
	errs = append(errs, validateGatesRemoved(spec.SchedulingGates, old.SchedulingGates)...)

	gated := len(old.SchedulingGates) > 0
	if gated {
		errs = slices.Concat(errs, validateSelectorTightened(spec.NodeSelector, old.NodeSelector), validateAffinityTightened(spec.Affinity, old.Affinity))
	}
	return append(errs, validateFixedFields(spec, old, gated)...)
}

// validateGatesRemoved holds gates to those of old. The order may change.
//
// A new name that stands twice is reported once, where it stands last.
func validateGatesRemoved(gates, old []corev1.PodSchedulingGate) field.ErrorList {
	reported := make(sets.Set[string], len(old)+len(gates))
	for _, gate := range old {
		reported.Insert(gate.Name)
	}
	var errs field.ErrorList
	for i, gate := range slices.Backward(gates) {
		if reported.Has(gate.Name) {
			continue
		}
		reported.Insert(gate.Name)
		errs = append(errs, field.Forbidden(gatesPath.Index(i).Child("name"),
			fmt.Sprintf("gate %q was not there before: the gates of an existing pod can only be taken away", gate.Name)))
	}
	return errs
}

// validateSelectorTightened holds selector to the entries of old, and more.
func validateSelectorTightened(selector, old map[string]string) field.ErrorList {
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if value, ok := selector[key]; !ok || value != old[key] {
			return field.ErrorList{field.Invalid(nodeSelectorPath, selector,
				fmt.Sprintf("%s=%s must stay: behind a scheduling gate keys may be added, none changed or taken away", key, old[key]))}
		}
	}
	return nil
}

// validateAffinityTightened holds the required node affinity to the terms of old,
// each with the same requirements first. Terms are ORed, so another term would
// widen; requirements are ANDed, so another requirement narrows. Where nothing was
// required, anything may be. Preferred terms bind no pod and may change freely.
func validateAffinityTightened(affinity, old *corev1.Affinity) field.ErrorList {
	terms, oldTerms := requiredTerms(affinity), requiredTerms(old)
	if len(oldTerms) == 0 {
		return nil
	}
	path := nodeAffinityPath.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if len(terms) != len(oldTerms) {
		return field.ErrorList{field.Invalid(path, terms,
			"the number of terms must stay as it is: requirements may be appended to each of them")}
	}
	var errs field.ErrorList
	for i := range oldTerms {
		if !termTightened(&terms[i], &oldTerms[i]) {
			errs = append(errs, field.Invalid(path.Index(i), terms[i],
				"what the term required must stay, in its order: requirements may only be appended"))
		}
	}
	return errs
}

// termTightened reports whether term is old with requirements appended. An empty
// term matches no node, so any requirement in it would widen.
func termTightened(term, old *corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions) == 0 && len(old.MatchFields) == 0 {
		return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
	}
	return hasPrefix(term.MatchExpressions, old.MatchExpressions) && hasPrefix(term.MatchFields, old.MatchFields)
}

func hasPrefix(requirements, prefix []corev1.NodeSelectorRequirement) bool {
	return len(requirements) >= len(prefix) && equality.Semantic.DeepEqual(requirements[:len(prefix)], prefix)
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	nodes := ptr.Deref(ptr.Deref(affinity, corev1.Affinity{}).NodeAffinity, corev1.NodeAffinity{})
	return ptr.Deref(nodes.RequiredDuringSchedulingIgnoredDuringExecution, corev1.NodeSelector{}).NodeSelectorTerms
}

// validateFixedFields returns one error with the names of the directives that changed and may not.
func validateFixedFields(spec, old *corev1.PodSpec, gated bool) field.ErrorList {
	var fields []string
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("nodeSelector", gated || maps.Equal(spec.NodeSelector, old.NodeSelector))
	add("affinity", sameAffinity(spec.Affinity, old.Affinity, gated))
	add("topologySpreadConstraints", equality.Semantic.DeepEqual(spec.TopologySpreadConstraints, old.TopologySpreadConstraints))
	add("schedulerName", spec.SchedulerName == old.SchedulerName)
	add("priority", ptr.Equal(spec.Priority, old.Priority))
	add("schedulingGroup", equality.Semantic.DeepEqual(spec.SchedulingGroup, old.SchedulingGroup))
	if len(fields) == 0 {
		return nil
	}
	detail := strings.Join(fields, ", ") + " may not change once the pod is created"
	if !gated && (slices.Contains(fields, "nodeSelector") || slices.Contains(fields, "affinity")) {
		detail += ": node selector and node affinity only while a scheduling gate holds it"
	}
	return field.ErrorList{field.Forbidden(specPath, detail)}
}

// sameAffinity reports whether the parts of affinity that may not change are as
// they were: all of it, or behind a gate all but the node affinity.
//
// The API server forgives a new, otherwise empty affinity only when it brings a
// change of the node affinity along. So `affinity: {}` is refused where no affinity
// was, and `affinity: {nodeAffinity: {}}` is not (SD-14).
func sameAffinity(affinity, old *corev1.Affinity, gated bool) bool {
	a, o := ptr.Deref(affinity, corev1.Affinity{}), ptr.Deref(old, corev1.Affinity{})
	if !gated || equality.Semantic.DeepEqual(a.NodeAffinity, o.NodeAffinity) {
		return equality.Semantic.DeepEqual(affinity, old)
	}
	return equality.Semantic.DeepEqual(a.PodAffinity, o.PodAffinity) &&
		equality.Semantic.DeepEqual(a.PodAntiAffinity, o.PodAntiAffinity)
}

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
