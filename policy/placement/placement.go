package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Set is a snapshot of PlacementPolicies. It does not change and is safe for
// concurrent use. The nil Set and the zero Set give nothing.
type Set struct {
	// policies are sorted by name, so that every replica says the same.
	policies []compiled
	// pods and claims find the policies that give something to them.
	pods, claims index
	// bounded are the tolerations of NoExecute for a while that claims are given.
	bounded  []resourcev1.DeviceToleration
	problems map[string]field.ErrorList
}

// compiled is a policy, read once.
type compiled struct {
	name  string
	match match
	pod   *podGift
	claim []resourcev1.DeviceToleration
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
	order := make([]*v1alpha1.PlacementPolicy, len(policies))
	for i := range policies {
		order[i] = &policies[i]
	}
	slices.SortStableFunc(order, func(a, b *v1alpha1.PlacementPolicy) int { return cmp.Compare(a.Name, b.Name) })

	s := &Set{policies: make([]compiled, 0, len(order)), problems: map[string]field.ErrorList{}}
	for position, p := range order {
		if errs := ValidatePolicy(p); len(errs) > 0 {
			s.problems[p.Name] = errs
		}
		m, whole := readable(&p.Spec.Match)
		c := compile(p, &m, whole)
		s.policies = append(s.policies, c)
		if c.pod != nil {
			s.pods.add(position, &m)
		}
		if len(c.claim) > 0 {
			s.claims.add(position, &m)
			s.bounded = append(s.bounded, slices.DeleteFunc(slices.Clone(c.claim), unbounded)...)
		}
	}
	return s
}

// compile reads a policy with what can be read of its match, which may not be the
// whole of it.
func compile(p *v1alpha1.PlacementPolicy, m *v1alpha1.PlacementMatch, whole bool) compiled {
	c := compiled{name: p.Name, match: newMatch(m)}
	if p.Spec.Pod != nil {
		c.pod = newPodGift(p.Spec.Pod)
	}
	if !whole {
		c.pod = c.pod.gatesAlone()
		return c
	}
	if p.Spec.Claim != nil {
		c.claim = validDeviceTolerations(p.Spec.Claim.Tolerations)
	}
	return c
}

// gates returns the gates that the policy gives, nil for none.
func (c *compiled) gates() []string {
	if c.pod == nil {
		return nil
	}
	return c.pod.gates
}

func newPodGift(in *v1alpha1.PodPlacement) *podGift {
	gift := &podGift{course: newCourse(in)}
	for i := range in.Tolerations {
		if len(validateToleration(&in.Tolerations[i], nil)) == 0 {
			gift.tolerations = append(gift.tolerations, *in.Tolerations[i].DeepCopy())
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
	return len(s.policies)
}

// Problems returns, by the name of the policy, why a policy is not fully in force, or
// would not be taken if it were written now. Policies without a fault are left out.
func (s *Set) Problems() map[string]field.ErrorList {
	if s == nil {
		return nil
	}
	return maps.Clone(s.problems)
}
