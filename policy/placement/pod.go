package placement

import (
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

	tolerations []given[corev1.Toleration]
	gates       []given[string]
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

	needs []need
}

// Requirements returns what is appended to the term.
func (t *Term) Requirements() []corev1.NodeSelectorRequirement {
	requirements := make([]corev1.NodeSelectorRequirement, len(t.needs))
	for i := range t.needs {
		requirements[i] = t.needs[i].NodeSelectorRequirement
	}
	return requirements
}

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
	if len(m.policies)+len(m.gating) == 0 {
		return PodAdditions{}
	}
	return m.give(pod, m.steering(pod))
}

// give returns the additions to a pod whose steering is known.
func (m Matching) give(pod Pod, s *steering) PodAdditions {
	var additions PodAdditions
	m.giveTolerations(pod.Spec, &additions)
	if pod.Spec.NodeName == "" {
		// A pod that is put on a node by name may not have gates (SD-01).
		m.giveGates(pod.Spec, &additions)
	}
	s.steer(&additions)
	m.giveSpread(pod.Spec, &additions)
	return additions
}

func (m Matching) giveTolerations(spec *corev1.PodSpec, to *PodAdditions) {
	var all []given[corev1.Toleration]
	for _, c := range m.policies {
		for i := range c.pod.tolerations {
			all = join(all, given[corev1.Toleration]{&c.pod.tolerations[i], c.name}, covers)
		}
	}
	to.tolerations = lacking(spec.Tolerations, all, covers)
	for _, t := range to.tolerations {
		to.Tolerations = append(to.Tolerations, *t.value)
	}
}

func (m Matching) giveGates(spec *corev1.PodSpec, to *PodAdditions) {
	for _, c := range m.gating {
		for i := range c.pod.gates {
			gate := corev1.PodSchedulingGate{Name: c.pod.gates[i]}
			if !slices.Contains(spec.SchedulingGates, gate) && !slices.Contains(to.Gates, gate) {
				to.Gates = append(to.Gates, gate)
				to.gates = append(to.gates, given[string]{&c.pod.gates[i], c.name})
			}
		}
	}
}

func (m Matching) giveSpread(spec *corev1.PodSpec, to *PodAdditions) {
	if len(spec.TopologySpreadConstraints) == 0 {
		return
	}
	defaults := m.spread()
	for i := range spec.TopologySpreadConstraints {
		constraint, set := &spec.TopologySpreadConstraints[i], SpreadDefault{Index: i}
		if constraint.NodeTaintsPolicy == nil {
			set.NodeTaintsPolicy = defaults.NodeTaintsPolicy
		}
		if constraint.NodeAffinityPolicy == nil {
			set.NodeAffinityPolicy = defaults.NodeAffinityPolicy
		}
		if set.NodeTaintsPolicy != nil || set.NodeAffinityPolicy != nil {
			to.Spread = append(to.Spread, set)
		}
	}
}

// spread returns the defaults that the policies set together.
func (m Matching) spread() v1alpha1.TopologySpreadDefaults {
	var together v1alpha1.TopologySpreadDefaults
	for _, c := range m.policies {
		together.NodeTaintsPolicy = honoured(together.NodeTaintsPolicy, c.pod.spread.NodeTaintsPolicy)
		together.NodeAffinityPolicy = honoured(together.NodeAffinityPolicy, c.pod.spread.NodeAffinityPolicy)
	}
	return together
}

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
	a.applySelector(spec)
	a.applyTerms(spec)
	if len(a.Spread) > 0 {
		spec.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
	}
	for _, set := range a.Spread {
		constraint := &spec.TopologySpreadConstraints[set.Index]
		if set.NodeTaintsPolicy != nil {
			constraint.NodeTaintsPolicy = new(*set.NodeTaintsPolicy)
		}
		if set.NodeAffinityPolicy != nil {
			constraint.NodeAffinityPolicy = new(*set.NodeAffinityPolicy)
		}
	}
}

func (a *PodAdditions) applySelector(spec *corev1.PodSpec) {
	if len(a.NodeSelector) == 0 {
		return
	}
	selector := make(map[string]string, len(spec.NodeSelector)+len(a.NodeSelector))
	maps.Copy(selector, spec.NodeSelector)
	for _, l := range a.NodeSelector {
		selector[l.Key] = l.Value
	}
	spec.NodeSelector = selector
}

func (a *PodAdditions) applyTerms(spec *corev1.PodSpec) {
	if len(a.Terms) == 0 {
		return
	}
	affinity := ptr.Deref(spec.Affinity, corev1.Affinity{})
	node := ptr.Deref(affinity.NodeAffinity, corev1.NodeAffinity{})
	selector := ptr.Deref(node.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy(), corev1.NodeSelector{})
	for i := range a.Terms {
		t := &a.Terms[i]
		if t.Index < 0 {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t.Requirements()})
			continue
		}
		term := &selector.NodeSelectorTerms[t.Index]
		term.MatchExpressions = append(term.MatchExpressions, t.Requirements()...)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution, affinity.NodeAffinity, spec.Affinity = &selector, &node, &affinity
}
