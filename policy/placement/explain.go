package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

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
	// bare is the pod without what policies give, but with the constraints that they complete.
	bare := pod
	bare.Spec = &corev1.PodSpec{TopologySpreadConstraints: make([]corev1.TopologySpreadConstraint, len(pod.Spec.TopologySpreadConstraints))}
	all, lacks := m.GivePod(bare), m.GivePod(pod)
	missing := map[string]bool{}
	for _, g := range m.gifts(&lacks) {
		missing[g.key()] = true
	}
	spread := all.Spread
	all.Spread = nil
	gifts := m.gifts(&all)
	for i := range gifts {
		gifts[i].Has = !missing[gifts[i].key()]
	}
	addSpread := func(index int, name string, given, own *corev1.NodeInclusionPolicy) {
		if given != nil && (own == nil || *own == *given) {
			gifts = append(gifts, Gift{Policies: m.spreaders(), Field: spreadPath(index), Value: name + ": " + string(*given), Has: own != nil})
		}
	}
	for _, set := range spread {
		own := &pod.Spec.TopologySpreadConstraints[set.Index]
		addSpread(set.Index, "nodeTaintsPolicy", set.NodeTaintsPolicy, own.NodeTaintsPolicy)
		addSpread(set.Index, "nodeAffinityPolicy", set.NodeAffinityPolicy, own.NodeAffinityPolicy)
	}
	for i, gate := range all.Gates {
		has := slices.Contains(pod.Spec.SchedulingGates, gate)
		gifts = append(gifts, Gift{Policies: []string{all.gating[i].name}, Field: "spec.schedulingGates", Value: policy.Short(gate.Name, maxName), Has: has})
	}
	return gifts
}

// key is for the comparison of gifts. For tolerations, it has the field and the value. For node
// requirements it is the value alone, because nodeSelector and any term of the node affinity are
// equivalent.
func (g *Gift) key() string {
	if g.Field == fieldTolerations {
		return g.Field + " " + g.Value
	}
	return g.Value
}

// Failed returns the policies that may be for the object, by name, with the reason.
func (m Matching) Failed() map[string]string {
	failed := make(map[string]string, len(m.failed))
	for _, f := range m.failed {
		failed[f.policy.name] = f.problem
	}
	return failed
}

// ClaimGifts returns what the policies give to the requests of a claim.
func (m Matching) ClaimGifts(requests []ClaimRequest) []Gift {
	var gifts []Gift
	for i := range requests {
		have := selector.FromDevices(requests[i].Tolerations)
		for _, t := range m.deviceTolerations() {
			has := len(lacking(have, []given{t})) == 0
			gifts = append(gifts, Gift{Policies: []string{t.policy}, Field: requests[i].Path.String(), Value: tolerationWords(t.Toleration), Has: has})
		}
	}
	return gifts
}

// gifts returns every addition other than gates, without Has.
func (m Matching) gifts(additions *PodAdditions) []Gift {
	var gifts []Gift
	add := func(policies []string, field, value string) {
		gifts = append(gifts, Gift{Policies: policies, Field: field, Value: value})
	}
	for _, t := range additions.tolerations {
		add([]string{t.policy}, fieldTolerations, tolerationWords(t.Toleration))
	}
	for _, l := range additions.NodeSelector {
		n := inValues(l.Key, l.Value)
		add(m.authorsOf(&n), "spec.nodeSelector", requirementWords(&n))
	}
	for _, t := range additions.Terms {
		for _, n := range t.needs {
			add(m.authorsOf(&n), termPath(t.Index), requirementWords(&n))
		}
	}
	for _, set := range additions.Spread {
		add(m.spreaders(), spreadPath(set.Index), set.words())
	}
	return gifts
}

func spreadPath(index int) string { return fmt.Sprintf("spec.topologySpreadConstraints[%d]", index) }
