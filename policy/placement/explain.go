package placement

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

const fieldTolerations = "spec.tolerations"

// Gift is one addition of policies to a pod or to a claim, to explain where a value comes
// from.
type Gift struct {
	// Policies are the names of the policies that give it.
	Policies []string `json:"policies"`
	// Field is where it belongs, and Value what it is, as in findings.
	Field string `json:"field"`
	Value string `json:"value"`
	// Has is true if the object has the value, or another one that covers it. The value can
	// come from a policy or from the author of the object.
	Has bool `json:"has"`
}

// Gifts returns the values that the policies add to a pod like this one, and whether the pod
// has them. A pod lacks a value if it is older than the policy, was changed, or had the gate
// removed. Defaults that a topologySpreadConstraint of the pod contradicts are omitted.
func (m Matching) Gifts(pod Pod) []Gift {
	bare := pod
	bare.Spec = bareOf(pod.Spec)
	all, lacks := m.GivePod(bare), m.GivePod(pod)
	missing := map[string]bool{}
	m.each(&lacks, func(_ []string, field, value string) { missing[sameGift(field, value)] = true })
	spread := all.Spread
	all.Spread = nil
	var gifts []Gift
	m.each(&all, func(policies []string, field, value string) {
		gifts = append(gifts, Gift{Policies: policies, Field: field, Value: value, Has: !missing[sameGift(field, value)]})
	})
	gifts = append(gifts, m.spreadGifts(spread, pod.Spec.TopologySpreadConstraints)...)
	for _, gate := range all.gates {
		has := slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: *gate.value})
		gifts = append(gifts, Gift{Policies: []string{gate.policy}, Field: "spec.schedulingGates", Value: policy.Short(*gate.value, maxName), Has: has})
	}
	return gifts
}

// sameGift returns a key for the comparison of gifts. For tolerations, the key has the field
// and the value. For node requirements it is the value alone, because nodeSelector and any
// term of the node affinity are equivalent.
func sameGift(field, value string) string {
	if field == fieldTolerations {
		return field + " " + value
	}
	return value
}

// bareOf returns a spec with nothing in it that policies give, but with the constraints
// that they complete.
func bareOf(spec *corev1.PodSpec) *corev1.PodSpec {
	bare := *spec
	bare.Tolerations, bare.NodeSelector, bare.Affinity, bare.SchedulingGates = nil, nil, nil, nil
	bare.NodeName = "" // It was made without one, as a rule.
	bare.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
	for i := range bare.TopologySpreadConstraints {
		bare.TopologySpreadConstraints[i].NodeTaintsPolicy, bare.TopologySpreadConstraints[i].NodeAffinityPolicy = nil, nil
	}
	return &bare
}

// spreadGifts returns the defaults that constraints have or lack.
func (m Matching) spreadGifts(all []SpreadDefault, constraints []corev1.TopologySpreadConstraint) []Gift {
	var gifts []Gift
	add := func(one SpreadDefault, given, own *corev1.NodeInclusionPolicy) {
		if given != nil && (own == nil || *own == *given) {
			gifts = append(gifts, Gift{Policies: m.spreaders(), Field: spreadPath(one.Index), Value: one.words(), Has: own != nil})
		}
	}
	for _, set := range all {
		own := &constraints[set.Index]
		add(SpreadDefault{Index: set.Index, NodeTaintsPolicy: set.NodeTaintsPolicy}, set.NodeTaintsPolicy, own.NodeTaintsPolicy)
		add(SpreadDefault{Index: set.Index, NodeAffinityPolicy: set.NodeAffinityPolicy}, set.NodeAffinityPolicy, own.NodeAffinityPolicy)
	}
	return gifts
}

// Failed returns the policies that may be for the object, by name, with the reason.
func (m Matching) Failed() map[string]string {
	failed := make(map[string]string, len(m.failed))
	for _, f := range m.failed {
		failed[f.policy.name] = policy.Short(f.problem, maxProblem)
		if f.missing != nil {
			failed[f.policy.name] = f.unknown()
		}
	}
	return failed
}

// ClaimGifts returns what the policies give to the requests of a claim.
func (m Matching) ClaimGifts(requests []ClaimRequest) []Gift {
	var gifts []Gift
	for i := range requests {
		r := &requests[i]
		for _, t := range m.deviceTolerations() {
			has := slices.ContainsFunc(r.Tolerations, func(have resourcev1.DeviceToleration) bool { return coversDevice(&have, t.value) })
			gifts = append(gifts, Gift{Policies: []string{t.policy}, Field: r.Path.String(), Value: tolerationWords(selector.FromDevice(t.value)), Has: has})
		}
	}
	return gifts
}

// each calls visit with every addition other than gates, and its policies.
func (m Matching) each(additions *PodAdditions, visit func(policies []string, field, value string)) {
	for _, t := range additions.tolerations {
		visit([]string{t.policy}, fieldTolerations, tolerationWords(t.value))
	}
	for _, l := range additions.NodeSelector {
		visit(m.authorsOf(new(inValues(l.Key, l.Value))), "spec.nodeSelector", requirementWords(new(inValues(l.Key, l.Value))))
	}
	for _, t := range additions.Terms {
		for i := range t.needs {
			visit(m.authorsOf(&t.needs[i].NodeSelectorRequirement), termPath(t.Index), requirementWords(&t.needs[i].NodeSelectorRequirement))
		}
	}
	for _, set := range additions.Spread {
		visit(m.spreaders(), spreadPath(set.Index), set.words())
	}
}

func spreadPath(index int) string {
	return "spec.topologySpreadConstraints[" + strconv.Itoa(index) + "]"
}
