package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateAffinityTightened holds the required node affinity to the terms of old,
// each with the same requirements first. Terms are ORed, so another term would
// widen; requirements are ANDed, so another requirement narrows. Where nothing was
// required, anything may be. Preferred terms bind nobody and may change freely.
func validateAffinityTightened(affinity, old *corev1.Affinity, path *field.Path) field.ErrorList {
	terms, oldTerms := requiredTerms(affinity), requiredTerms(old)
	if len(oldTerms) == 0 {
		return nil
	}
	path = path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
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

// affinityFixed reports whether the parts of affinity that may not change are as
// they were: all of it, or behind a gate all but the node affinity.
//
// The API server forgives a new, otherwise empty affinity only when it brings a
// change of the node affinity along. So `affinity: {}` is refused where no affinity
// was, and `affinity: {nodeAffinity: {}}` is not (SD-14).
func affinityFixed(affinity, old *corev1.Affinity, gated bool) bool {
	a, o := valueOf(affinity), valueOf(old)
	if !gated || equality.Semantic.DeepEqual(a.NodeAffinity, o.NodeAffinity) {
		return equality.Semantic.DeepEqual(affinity, old)
	}
	return equality.Semantic.DeepEqual(a.PodAffinity, o.PodAffinity) &&
		equality.Semantic.DeepEqual(a.PodAntiAffinity, o.PodAntiAffinity)
}

func valueOf(affinity *corev1.Affinity) corev1.Affinity {
	if affinity == nil {
		return corev1.Affinity{}
	}
	return *affinity
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}
