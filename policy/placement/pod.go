package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Pod is the judged part of a pod that is created.
type Pod struct {
	// Spec needs nodeName, nodeSelector, affinity, tolerations,
	// topologySpreadConstraints and schedulingGates.
	Spec *corev1.PodSpec
	// FromDaemonSetController says that the DaemonSet controller itself sent the
	// request. It creates a pod for each node that the template selects, and one that
	// is steered to other nodes would wait for ever: its pods are not steered.
	FromDaemonSetController bool
}

// PodAdditions are the additions to a pod.
type PodAdditions struct {
	// Tolerations and Gates are appended.
	Tolerations []corev1.Toleration
	Gates       []corev1.PodSchedulingGate
	// NodeSelector has labels that the nodeSelector does not have, sorted.
	NodeSelector []Labelled
	// Terms has what is appended to required terms, ascending.
	Terms []Term
	// Spread has defaults of constraints, ascending.
	Spread []SpreadDefault

	tolerations []given
	// gating are the policies of the gates.
	gating []*compiled
}

// Labelled is a label with its value.
type Labelled struct {
	Key, Value string
}

// Term is what is appended to a required term of node affinity.
type Term struct {
	// Index is that of the term; -1 for a term that is made, because nothing is
	// required yet.
	Index int

	needs requirements
}

// Requirements returns what is appended to the term. They must not be written to.
func (t *Term) Requirements() []corev1.NodeSelectorRequirement { return t.needs }

// SpreadDefault is what is set in a constraint; nil is nothing.
type SpreadDefault struct {
	Index                                int
	NodeTaintsPolicy, NodeAffinityPolicy *corev1.NodeInclusionPolicy
}

// Empty reports whether nothing is added.
func (a *PodAdditions) Empty() bool {
	return len(a.Tolerations)+len(a.Gates)+len(a.NodeSelector)+len(a.Terms)+len(a.Spread) == 0
}

// GivePod returns the additions of the policies to a pod. A pod that has them is given
// nothing more.
func (m Matching) GivePod(pod Pod) PodAdditions {
	if m.Empty() {
		return PodAdditions{}
	}
	return m.give(pod, m.steering(pod))
}

// give returns the additions to a pod whose steering is known.
func (m Matching) give(pod Pod, s *steering) PodAdditions {
	var additions PodAdditions
	var tolerations []given
	var defaults v1alpha1.TopologySpreadDefaults
	for _, c := range m.policies {
		tolerations = join(tolerations, c.tolerations, c.name)
		defaults.NodeTaintsPolicy = honoured(defaults.NodeTaintsPolicy, c.spread.NodeTaintsPolicy)
		defaults.NodeAffinityPolicy = honoured(defaults.NodeAffinityPolicy, c.spread.NodeAffinityPolicy)
	}
	additions.tolerations = lacking(pod.Spec.Tolerations, tolerations)
	for _, t := range additions.tolerations {
		additions.Tolerations = append(additions.Tolerations, *t.Toleration)
	}
	if pod.Spec.NodeName == "" {
		// A pod that is put on a node by name may not have gates (SD-01).
		m.giveGates(pod.Spec, &additions)
	}
	s.steer(&additions)
	for i, constraint := range pod.Spec.TopologySpreadConstraints {
		set := SpreadDefault{Index: i}
		if constraint.NodeTaintsPolicy == nil {
			set.NodeTaintsPolicy = defaults.NodeTaintsPolicy
		}
		if constraint.NodeAffinityPolicy == nil {
			set.NodeAffinityPolicy = defaults.NodeAffinityPolicy
		}
		if set.NodeTaintsPolicy != nil || set.NodeAffinityPolicy != nil {
			additions.Spread = append(additions.Spread, set)
		}
	}
	return additions
}

func (m Matching) giveGates(spec *corev1.PodSpec, to *PodAdditions) {
	for _, c := range m.gating {
		for _, name := range c.gates {
			gate := corev1.PodSchedulingGate{Name: name}
			if !slices.Contains(spec.SchedulingGates, gate) && !slices.Contains(to.Gates, gate) {
				to.Gates = append(to.Gates, gate)
				to.gating = append(to.gating, c)
			}
		}
	}
}

// honoured returns the default of two policies together, of which each is nil for none.
func honoured(a, b *corev1.NodeInclusionPolicy) *corev1.NodeInclusionPolicy {
	if a == nil || b != nil && *b == corev1.NodeInclusionPolicyHonor {
		return b
	}
	return a
}

// Apply makes the additions to a pod. It does not write to memory that spec shares.
func (a *PodAdditions) Apply(spec *corev1.PodSpec) {
	spec.Tolerations = slices.Concat(spec.Tolerations, a.Tolerations)
	spec.SchedulingGates = slices.Concat(spec.SchedulingGates, a.Gates)
	if len(a.NodeSelector) > 0 {
		selector := map[string]string{}
		maps.Copy(selector, spec.NodeSelector)
		for _, l := range a.NodeSelector {
			selector[l.Key] = l.Value
		}
		spec.NodeSelector = selector
	}
	if len(a.Terms) > 0 {
		affinity := ptr.Deref(spec.Affinity, corev1.Affinity{})
		node := ptr.Deref(affinity.NodeAffinity, corev1.NodeAffinity{})
		required := ptr.Deref(node.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy(), corev1.NodeSelector{})
		for _, t := range a.Terms {
			if t.Index < 0 { // the only one
				required.NodeSelectorTerms, t.Index = make([]corev1.NodeSelectorTerm, 1), 0
			}
			term := &required.NodeSelectorTerms[t.Index]
			term.MatchExpressions = append(term.MatchExpressions, t.needs...)
		}
		node.RequiredDuringSchedulingIgnoredDuringExecution, affinity.NodeAffinity, spec.Affinity = &required, &node, &affinity
	}
	if len(a.Spread) > 0 {
		spec.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
	}
	for _, set := range a.Spread {
		constraint := &spec.TopologySpreadConstraints[set.Index]
		constraint.NodeTaintsPolicy = cmp.Or(constraint.NodeTaintsPolicy, set.NodeTaintsPolicy)
		constraint.NodeAffinityPolicy = cmp.Or(constraint.NodeAffinityPolicy, set.NodeAffinityPolicy)
	}
}
