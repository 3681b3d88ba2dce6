package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Set is a snapshot of PlacementPolicies. It does not change and is safe for
// concurrent use. The nil Set and the zero Set give nothing.
type Set struct {
	policy.Set[*compiled]
	// pods and claims find the policies that give something to them.
	pods, claims index
	// bounded are the tolerations of NoExecute for a while that claims are given.
	bounded []resourcev1.DeviceToleration
}

// compiled is a policy, read once.
type compiled struct {
	name  string
	match match
	// readable is the part of the match that can be read.
	readable v1alpha1.PlacementMatch
	pod      *podGift
	claim    []resourcev1.DeviceToleration
}

// podGift is what a policy gives to pods: the parts of it that are valid.
type podGift struct {
	tolerations []corev1.Toleration
	course      course
	spread      v1alpha1.TopologySpreadDefaults
	gates       []string
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// Of what a policy gives, that with a fault is left out. A policy with a match that
// names nobody, or that holds a selector with a fault, may be for anybody: it gives
// its gates to all that the rest of the match is for, and nothing else, because a
// gate that is too many can be opened, and one that is missing has let a pod by.
// Problems names the faults.
func Compile(policies []v1alpha1.PlacementPolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.PlacementPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile)}
	for position, c := range next.Policies {
		if c.pod != nil {
			next.pods.add(position, &c.readable)
		}
		if len(c.claim) > 0 {
			next.claims.add(position, &c.readable)
			next.bounded = append(next.bounded, slices.DeleteFunc(slices.Clone(c.claim), unbounded)...)
		}
	}
	return next
}

// compile reads a policy with what can be read of its match, which may not be the
// whole of it.
func compile(p *v1alpha1.PlacementPolicy) (*compiled, field.ErrorList) {
	m, whole := readable(&p.Spec.Match)
	c := &compiled{name: p.Name, match: newMatch(&m), readable: *m.DeepCopy()}
	if p.Spec.Pod != nil || p.Spec.Guard != nil {
		c.pod = newPodGift(&p.Spec)
	}
	if !whole {
		c.pod = c.pod.gatesAlone()
	} else if p.Spec.Claim != nil {
		c.claim = validDeviceTolerations(p.Spec.Claim.Tolerations)
	}
	return c, ValidatePolicy(p)
}

// gates returns the gates that the policy gives, nil for none.
func (c *compiled) gates() []string {
	if c.pod == nil {
		return nil
	}
	return c.pod.gates
}

func newPodGift(spec *v1alpha1.PlacementPolicySpec) *podGift {
	in := spec.Pod
	if in == nil {
		in = &v1alpha1.PodPlacement{}
	}
	gift := &podGift{course: newCourse(in)}
	for _, t := range slices.Concat(in.Tolerations, guardTolerations(spec.Guard)) {
		if len(validateToleration(&t, nil)) == 0 {
			gift.tolerations = append(gift.tolerations, *t.DeepCopy())
		}
	}
	if in.TopologySpread != nil && len(validateSpread(in.TopologySpread, nil)) == 0 {
		gift.spread = *in.TopologySpread.DeepCopy()
	}
	for _, gate := range in.SchedulingGates {
		if len(validateGate(gate, nil)) == 0 {
			gift.gates = append(gift.gates, gate)
		}
	}
	return gift
}

// gatesAlone returns what of a gift are gates; nil where there are none.
func (g *podGift) gatesAlone() *podGift {
	if g == nil || len(g.gates) == 0 {
		return nil
	}
	return &podGift{gates: g.gates}
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}
