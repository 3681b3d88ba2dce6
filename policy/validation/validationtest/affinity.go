package validationtest

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func affinityOf(pod *corev1.Pod) *corev1.Affinity {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	return pod.Spec.Affinity
}

func nodeAffinityOf(pod *corev1.Pod) *corev1.NodeAffinity {
	a := affinityOf(pod)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	return a.NodeAffinity
}

func requiredOf(pod *corev1.Pod) *corev1.NodeSelector {
	a := nodeAffinityOf(pod)
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution
}

// onRequired applies to the required terms of pods that have some.
func onRequired(apply func(r *rand.Rand, required *corev1.NodeSelector)) func(*rand.Rand, *corev1.Pod) {
	return func(r *rand.Rand, pod *corev1.Pod) {
		a := pod.Spec.Affinity
		if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
			len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
			return
		}
		apply(r, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
}

// onTerm applies to one of the required terms.
func onTerm(apply func(r *rand.Rand, t *corev1.NodeSelectorTerm)) func(*rand.Rand, *corev1.Pod) {
	return onRequired(func(r *rand.Rand, required *corev1.NodeSelector) {
		apply(r, &required.NodeSelectorTerms[r.IntN(len(required.NodeSelectorTerms))])
	})
}

// onExpression applies to one of the expressions of a required term.
func onExpression(apply func(r *rand.Rand, e *corev1.NodeSelectorRequirement)) func(*rand.Rand, *corev1.Pod) {
	return onTerm(func(r *rand.Rand, t *corev1.NodeSelectorTerm) {
		if len(t.MatchExpressions) > 0 {
			apply(r, &t.MatchExpressions[r.IntN(len(t.MatchExpressions))])
		}
	})
}

// The first five narrow, or set what was not there, which is allowed on pods that
// are held unless the term was empty.
var requiredChanges = []change{
	{"an expression is appended", onTerm(func(r *rand.Rand, t *corev1.NodeSelectorTerm) {
		t.MatchExpressions = append(t.MatchExpressions, expression(r))
	})},
	{"a field is appended", onTerm(func(r *rand.Rand, t *corev1.NodeSelectorTerm) {
		t.MatchFields = append(t.MatchFields, nameRequirement(r))
	})},
	{"an expression for every term", onRequired(func(r *rand.Rand, required *corev1.NodeSelector) {
		for i := range required.NodeSelectorTerms {
			t := &required.NodeSelectorTerms[i]
			t.MatchExpressions = append(t.MatchExpressions, expression(r))
		}
	})},
	{"the first required terms", func(r *rand.Rand, pod *corev1.Pod) {
		if required := requiredOf(pod); len(required.NodeSelectorTerms) == 0 {
			required.NodeSelectorTerms = terms(r)
		}
	}},
	{"an empty list of expressions", onTerm(func(_ *rand.Rand, t *corev1.NodeSelectorTerm) {
		if len(t.MatchExpressions) == 0 {
			t.MatchExpressions = []corev1.NodeSelectorRequirement{}
		}
	})},
	{"an expression comes first", onTerm(func(r *rand.Rand, t *corev1.NodeSelectorTerm) {
		t.MatchExpressions = slices.Insert(t.MatchExpressions, 0, expression(r))
	})},
	{"a field comes first", onTerm(func(r *rand.Rand, t *corev1.NodeSelectorTerm) {
		t.MatchFields = slices.Insert(t.MatchFields, 0, nameRequirement(r))
	})},
	{"expressions in another order", onTerm(func(_ *rand.Rand, t *corev1.NodeSelectorTerm) {
		slices.Reverse(t.MatchExpressions)
	})},
	{"the expressions go", onTerm(func(_ *rand.Rand, t *corev1.NodeSelectorTerm) { t.MatchExpressions = nil })},
	{"the fields go", onTerm(func(_ *rand.Rand, t *corev1.NodeSelectorTerm) { t.MatchFields = nil })},
	{"a value more", onExpression(func(_ *rand.Rand, e *corev1.NodeSelectorRequirement) { e.Values = append(e.Values, "more") })},
	{"a value less", onExpression(func(_ *rand.Rand, e *corev1.NodeSelectorRequirement) {
		if len(e.Values) > 1 {
			e.Values = e.Values[1:]
		}
	})},
	{"values in another order", onExpression(func(_ *rand.Rand, e *corev1.NodeSelectorRequirement) { slices.Reverse(e.Values) })},
	{"another key", onExpression(func(_ *rand.Rand, e *corev1.NodeSelectorRequirement) { e.Key = "example.com/other" })},
	{"another operator", onExpression(func(_ *rand.Rand, e *corev1.NodeSelectorRequirement) {
		if e.Operator == corev1.NodeSelectorOpIn {
			e.Operator = corev1.NodeSelectorOpNotIn
		}
	})},
	{"a term more", onRequired(func(r *rand.Rand, required *corev1.NodeSelector) {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term(r))
	})},
	{"a term less", onRequired(func(_ *rand.Rand, required *corev1.NodeSelector) {
		required.NodeSelectorTerms = required.NodeSelectorTerms[1:]
	})},
	{"terms in another order", onRequired(func(_ *rand.Rand, required *corev1.NodeSelector) {
		slices.Reverse(required.NodeSelectorTerms)
	})},
	{"no terms in what is required", func(_ *rand.Rand, pod *corev1.Pod) { requiredOf(pod).NodeSelectorTerms = nil }},
	{"nothing required", func(_ *rand.Rand, pod *corev1.Pod) {
		nodeAffinityOf(pod).RequiredDuringSchedulingIgnoredDuringExecution = nil
	}},
}

// The first four touch only what binds nobody, which is allowed on pods that are
// held, save that a new affinity must not stay empty.
var affinityChanges = []change{
	{"a preferred term comes", func(r *rand.Rand, pod *corev1.Pod) {
		a := nodeAffinityOf(pod)
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, preferredTerm(r))
	}},
	{"the preferred terms go", func(_ *rand.Rand, pod *corev1.Pod) {
		if pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
			pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
	}},
	{"a preferred value that no label has", func(r *rand.Rand, pod *corev1.Pod) {
		preferred := preferredTerm(r)
		preferred.Preference.MatchExpressions = []corev1.NodeSelectorRequirement{
			{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{notALabelValue}},
		}
		nodeAffinityOf(pod).PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{preferred}
	}},
	{"an empty node affinity", func(_ *rand.Rand, pod *corev1.Pod) { nodeAffinityOf(pod) }},
	{"an empty affinity", func(_ *rand.Rand, pod *corev1.Pod) { affinityOf(pod) }},
	{"the node affinity goes", func(_ *rand.Rand, pod *corev1.Pod) {
		if pod.Spec.Affinity != nil {
			pod.Spec.Affinity.NodeAffinity = nil
		}
	}},
	{"the affinity goes", func(_ *rand.Rand, pod *corev1.Pod) { pod.Spec.Affinity = nil }},
	{"a preferred term without weight", func(r *rand.Rand, pod *corev1.Pod) {
		nodeAffinityOf(pod).PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: pick(r, []int32{0, -1, 101}), Preference: term(r)},
		}
	}},
}

// badTermChanges append requirements that no pod may have: to a required term, or
// as the first one.
var badTermChanges = []change{
	badExpression("In without values", corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn}),
	badExpression("Exists with values", corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpExists, Values: []string{"a"}}),
	badExpression("Gt with two values", corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpGt, Values: []string{"1", "2"}}),
	badExpression("an unknown operator", corev1.NodeSelectorRequirement{Key: "zone", Operator: "Near", Values: []string{"a"}}),
	badExpression("a bad key", corev1.NodeSelectorRequirement{Key: "bad key", Operator: corev1.NodeSelectorOpExists}),
	badExpression("a value that no label has", corev1.NodeSelectorRequirement{
		Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", notALabelValue},
	}),
	badField("a field that nodes lack", corev1.NodeSelectorRequirement{Key: "spec.podCIDR", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}),
	badField("a field with two values", corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}),
	badField("a field that exists", corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpExists}),
	badField("a name that no node has", corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"Node_1"}}),
}

func badExpression(name string, requirement corev1.NodeSelectorRequirement) change {
	return change{name, onAnyTerm(func(t *corev1.NodeSelectorTerm) {
		t.MatchExpressions = append(t.MatchExpressions, *requirement.DeepCopy())
	})}
}

func badField(name string, requirement corev1.NodeSelectorRequirement) change {
	return change{name, onAnyTerm(func(t *corev1.NodeSelectorTerm) { t.MatchFields = append(t.MatchFields, *requirement.DeepCopy()) })}
}

// onAnyTerm applies to a required term, which it makes where there is none.
func onAnyTerm(apply func(t *corev1.NodeSelectorTerm)) func(*rand.Rand, *corev1.Pod) {
	return func(r *rand.Rand, pod *corev1.Pod) {
		required := requiredOf(pod)
		if len(required.NodeSelectorTerms) == 0 {
			required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
		}
		apply(&required.NodeSelectorTerms[r.IntN(len(required.NodeSelectorTerms))])
	}
}
