package tightening

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A change alters one directive of a pod. Where the pod has nothing that it could
// alter, it leaves the pod as it is.
type change struct {
	name  string
	apply func()
}

// changePod returns an update of old: a copy with up to three changes. It draws most
// of them from those that narrow, or nearly every update would be refused.
func changePod(r *rand.Rand, old *corev1.Pod) *corev1.Pod {
	pod := old.DeepCopy()
	narrowing, others := changes(r, pod)
	all := slices.Concat(narrowing, others)
	for range 1 + r.IntN(3) {
		if r.IntN(100) < 40 {
			pick(r, all).apply()
			continue
		}
		pick(r, narrowing).apply()
	}
	return pod
}

// changes returns the changes of a pod: those that are allowed on some pods, and the others.
func changes(r *rand.Rand, pod *corev1.Pod) (narrowing, others []change) {
	c := changer{r, pod, &pod.Spec}
	return c.narrowing(), slices.Concat(c.widening(), c.fixed(), c.invalid())
}

type changer struct {
	r    *rand.Rand
	pod  *corev1.Pod
	spec *corev1.PodSpec
}

func (c changer) addGate(name string) {
	c.spec.SchedulingGates = append(c.spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
}

func (c changer) setSelector(key, value string) {
	if c.spec.NodeSelector == nil {
		c.spec.NodeSelector = map[string]string{}
	}
	c.spec.NodeSelector[key] = value
}

// onTerms applies to the required terms of a pod that has some.
func (c changer) onTerms(apply func(terms *[]corev1.NodeSelectorTerm)) func() {
	return func() {
		if a := c.spec.Affinity; a != nil && a.NodeAffinity != nil {
			if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && len(required.NodeSelectorTerms) > 0 {
				apply(&required.NodeSelectorTerms)
			}
		}
	}
}

// onTerm applies to one of the required terms.
func (c changer) onTerm(apply func(t *corev1.NodeSelectorTerm)) func() {
	return c.onTerms(func(terms *[]corev1.NodeSelectorTerm) { apply(&(*terms)[c.r.IntN(len(*terms))]) })
}

// onExpression applies to one of the expressions of a required term.
func (c changer) onExpression(apply func(e *corev1.NodeSelectorRequirement)) func() {
	return c.onTerm(func(t *corev1.NodeSelectorTerm) {
		if len(t.MatchExpressions) > 0 {
			apply(&t.MatchExpressions[c.r.IntN(len(t.MatchExpressions))])
		}
	})
}

// narrowing returns the changes that are allowed on some pods. The first three are allowed on every
// pod, the others on pods that are held, unless a term was empty. The last four touch only preferred
// terms, save that a new affinity must not stay empty.
func (c changer) narrowing() []change {
	r, pod, spec := c.r, c.pod, c.spec
	return []change{
		{"the last gate goes", func() { spec.SchedulingGates = nil }},
		{"one gate goes", func() {
			if n := len(spec.SchedulingGates); n > 0 {
				i := r.IntN(n)
				spec.SchedulingGates = slices.Delete(spec.SchedulingGates, i, i+1)
			}
		}},
		{"gates in another order", func() { slices.Reverse(spec.SchedulingGates) }},
		{"a selector key comes", func() { c.setSelector("example.com/new", pick(r, labels)) }},
		{"another selector key comes", func() {
			if key := pick(r, labelKeys); spec.NodeSelector[key] == "" {
				c.setSelector(key, pick(r, labels))
			}
		}},
		{"an expression is appended", c.onTerm(func(t *corev1.NodeSelectorTerm) { t.MatchExpressions = append(t.MatchExpressions, expression(r)) })},
		{"a field is appended", c.onTerm(func(t *corev1.NodeSelectorTerm) { t.MatchFields = append(t.MatchFields, nameRequirement(r)) })},
		{"an expression for every term", c.onTerms(func(terms *[]corev1.NodeSelectorTerm) {
			for i := range *terms {
				t := &(*terms)[i]
				t.MatchExpressions = append(t.MatchExpressions, expression(r))
			}
		})},
		{"the first required terms", func() {
			if required := requiredOf(pod); len(required.NodeSelectorTerms) == 0 {
				required.NodeSelectorTerms = terms(r)
			}
		}},
		{"an empty list of expressions", c.onTerm(func(t *corev1.NodeSelectorTerm) {
			if len(t.MatchExpressions) == 0 {
				t.MatchExpressions = []corev1.NodeSelectorRequirement{}
			}
		})},
		{"a preferred term comes", func() {
			preferred := &nodeAffinityOf(pod).PreferredDuringSchedulingIgnoredDuringExecution
			*preferred = append(*preferred, preferredTerm(r))
		}},
		{"the preferred terms go", func() {
			if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
				spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
			}
		}},
		{"a preferred value that no label has", func() {
			preferred := preferredTerm(r)
			preferred.Preference.MatchExpressions = []corev1.NodeSelectorRequirement{requirement("zone", corev1.NodeSelectorOpIn, notALabelValue)}
			nodeAffinityOf(pod).PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{preferred}
		}},
		{"an empty node affinity", func() { nodeAffinityOf(pod) }},
	}
}

func (c changer) widening() []change {
	r, pod, spec := c.r, c.pod, c.spec
	return []change{
		{"a gate comes", func() { c.addGate("example.com/late") }},
		{"a gate is replaced", func() {
			if n := len(spec.SchedulingGates); n > 0 {
				spec.SchedulingGates[r.IntN(n)].Name = "example.com/late"
			}
		}},
		{"a gate twice", func() {
			if len(spec.SchedulingGates) > 0 {
				c.addGate(spec.SchedulingGates[0].Name)
			}
		}},
		{"a new gate twice", func() {
			c.addGate("example.com/late")
			c.addGate("example.com/late")
		}},
		{"a gate without a proper name", func() { c.addGate(pick(r, []string{"", "two/slashes/here", "-dash", "Upper.Example.Com/x"})) }},

		{"a selector key goes", func() { delete(spec.NodeSelector, pick(r, labelKeys)) }},
		{"a selector value changes", func() {
			if key := pick(r, labelKeys); spec.NodeSelector[key] != "" {
				spec.NodeSelector[key] = "other"
			}
		}},
		{"a selector value empties", func() { c.setSelector(pick(r, labelKeys), "") }},
		{"the selector goes", func() { spec.NodeSelector = nil }},
		{"an empty selector", func() { spec.NodeSelector = map[string]string{} }},
		{"a bad selector key", func() { c.setSelector("bad key", "a") }},
		{"a bad selector value", func() { c.setSelector("zone", notALabelValue) }},

		{"an expression comes first", c.onTerm(func(t *corev1.NodeSelectorTerm) {
			t.MatchExpressions = slices.Insert(t.MatchExpressions, 0, expression(r))
		})},
		{"a field comes first", c.onTerm(func(t *corev1.NodeSelectorTerm) { t.MatchFields = slices.Insert(t.MatchFields, 0, nameRequirement(r)) })},
		{"expressions in another order", c.onTerm(func(t *corev1.NodeSelectorTerm) { slices.Reverse(t.MatchExpressions) })},
		{"the expressions go", c.onTerm(func(t *corev1.NodeSelectorTerm) { t.MatchExpressions = nil })},
		{"the fields go", c.onTerm(func(t *corev1.NodeSelectorTerm) { t.MatchFields = nil })},
		{"a value more", c.onExpression(func(e *corev1.NodeSelectorRequirement) { e.Values = append(e.Values, "more") })},
		{"a value less", c.onExpression(func(e *corev1.NodeSelectorRequirement) {
			if len(e.Values) > 1 {
				e.Values = e.Values[1:]
			}
		})},
		{"values in another order", c.onExpression(func(e *corev1.NodeSelectorRequirement) { slices.Reverse(e.Values) })},
		{"another key", c.onExpression(func(e *corev1.NodeSelectorRequirement) { e.Key = "example.com/other" })},
		{"another operator", c.onExpression(func(e *corev1.NodeSelectorRequirement) {
			if e.Operator == corev1.NodeSelectorOpIn {
				e.Operator = corev1.NodeSelectorOpNotIn
			}
		})},
		{"a term more", c.onTerms(func(terms *[]corev1.NodeSelectorTerm) { *terms = append(*terms, term(r)) })},
		{"a term less", c.onTerms(func(terms *[]corev1.NodeSelectorTerm) { *terms = (*terms)[1:] })},
		{"terms in another order", c.onTerms(func(terms *[]corev1.NodeSelectorTerm) { slices.Reverse(*terms) })},
		{"no terms in what is required", func() { requiredOf(pod).NodeSelectorTerms = nil }},
		{"nothing required", func() { nodeAffinityOf(pod).RequiredDuringSchedulingIgnoredDuringExecution = nil }},

		{"an empty affinity", func() { affinityOf(pod) }},
		{"the node affinity goes", func() {
			if spec.Affinity != nil {
				spec.Affinity.NodeAffinity = nil
			}
		}},
		{"the affinity goes", func() { spec.Affinity = nil }},
		{"a preferred term without weight", func() {
			nodeAffinityOf(pod).PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
				{Weight: pick(r, []int32{0, -1, 101}), Preference: term(r)},
			}
		}},
	}
}

// fixed returns changes that are allowed on no pod, unless they repeat a directive of the pod.
func (c changer) fixed() []change {
	r, pod, spec := c.r, c.pod, c.spec
	return []change{
		{"pod affinity changes", func() {
			affinityOf(pod).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)}}
		}},
		{"pod affinity goes", func() {
			if spec.Affinity != nil {
				spec.Affinity.PodAffinity = nil
			}
		}},
		{"pod anti-affinity changes", func() {
			affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(r)}}
		}},
		{"empty pod anti-affinity", func() { affinityOf(pod).PodAntiAffinity = &corev1.PodAntiAffinity{} }},
		{"spreading changes", func() { spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spreadConstraint(r)} }},
		{"spreading goes", func() { spec.TopologySpreadConstraints = nil }},
		{"empty spreading", func() {
			if len(spec.TopologySpreadConstraints) == 0 {
				spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{}
			}
		}},
		{"another scheduler", func() { spec.SchedulerName = "somebody" }},
		{"another priority", func() { spec.Priority = new(int32(7)) }},
		{"another scheduling group", func() {
			spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("group-" + pick(r, labels))}
		}},
	}
}

// invalid returns changes that append a requirement that no pod may have to a required term.
func (c changer) invalid() []change {
	var all []change
	expression := func(name, key string, operator corev1.NodeSelectorOperator, values ...string) {
		all = append(all, change{name, func() {
			t := requiredTerm(c.r, c.pod)
			t.MatchExpressions = append(t.MatchExpressions, requirement(key, operator, values...))
		}})
	}
	field := func(name, key string, operator corev1.NodeSelectorOperator, values ...string) {
		all = append(all, change{name, func() {
			t := requiredTerm(c.r, c.pod)
			t.MatchFields = append(t.MatchFields, requirement(key, operator, values...))
		}})
	}
	expression("In without values", "zone", corev1.NodeSelectorOpIn)
	expression("Exists with values", "zone", corev1.NodeSelectorOpExists, "a")
	expression("Gt with two values", "zone", corev1.NodeSelectorOpGt, "1", "2")
	expression("an unknown operator", "zone", "Near", "a")
	expression("a bad key", "bad key", corev1.NodeSelectorOpExists)
	expression("a value that no label has", "zone", corev1.NodeSelectorOpIn, "a", notALabelValue)
	field("a field that nodes lack", "spec.podCIDR", corev1.NodeSelectorOpIn, "a")
	field("a field with two values", "metadata.name", corev1.NodeSelectorOpIn, "a", "b")
	field("a field that exists", "metadata.name", corev1.NodeSelectorOpExists)
	field("a name that no node has", "metadata.name", corev1.NodeSelectorOpIn, "Node_1")
	return all
}

func requirement(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: slices.Clone(values)}
}

func affinityOf(pod *corev1.Pod) *corev1.Affinity { return made(&pod.Spec.Affinity) }

func nodeAffinityOf(pod *corev1.Pod) *corev1.NodeAffinity { return made(&affinityOf(pod).NodeAffinity) }

func requiredOf(pod *corev1.Pod) *corev1.NodeSelector {
	return made(&nodeAffinityOf(pod).RequiredDuringSchedulingIgnoredDuringExecution)
}

// requiredTerm returns a required term of a pod, which it makes where there is none.
func requiredTerm(r *rand.Rand, pod *corev1.Pod) *corev1.NodeSelectorTerm {
	terms := &requiredOf(pod).NodeSelectorTerms
	if len(*terms) == 0 {
		*terms = []corev1.NodeSelectorTerm{{}}
	}
	return &(*terms)[r.IntN(len(*terms))]
}

// made returns the value of a field, which it makes where there is none.
func made[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}
