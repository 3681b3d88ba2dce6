package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
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

// compiled is a compiled policy.
type compiled struct {
	name  string
	match match
	// readable is the part of the match that can be read.
	readable v1alpha1.PlacementMatch
	pod      *podParts
	claim    []resourcev1.DeviceToleration
}

// podParts are the valid parts of a policy for pods.
type podParts struct {
	tolerations []corev1.Toleration
	nodes       []need
	spread      v1alpha1.TopologySpreadDefaults
	gates       []string
}

// Compile returns the set of policies. The set shares no memory with the argument.
//
// Invalid additions of a policy are omitted. If the match of a policy has no criterion or an
// invalid selector, the policy adds its scheduling gates, and nothing else, to every pod that
// the valid part of the match selects: a superfluous gate can be removed, but a pod without a
// required gate is scheduled. Problems returns the errors.
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

// compile compiles a policy with the part of its match that can be read. Where that is not
// the whole of it, the policy gives gates alone.
func compile(p *v1alpha1.PlacementPolicy) (*compiled, field.ErrorList) {
	m, whole := readable(&p.Spec.Match)
	c := &compiled{name: p.Name, match: compileMatch(&m), readable: *m.DeepCopy()}
	if p.Spec.Pod != nil || p.Spec.Guard != nil {
		c.pod = compilePod(&p.Spec)
	}
	if !whole {
		gates := c.gates()
		c.pod = nil
		if len(gates) > 0 {
			c.pod = &podParts{gates: gates}
		}
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

func compilePod(spec *v1alpha1.PlacementPolicySpec) *podParts {
	in := spec.Pod
	if in == nil {
		in = &v1alpha1.PodPlacement{}
	}
	parts := &podParts{nodes: compileNodes(in)}
	for _, t := range slices.Concat(in.Tolerations, guardTolerations(spec)) {
		if len(validateToleration(&t, nil)) == 0 {
			parts.tolerations = append(parts.tolerations, *t.DeepCopy())
		}
	}
	if in.TopologySpread != nil && len(validateSpread(in.TopologySpread, nil)) == 0 {
		parts.spread = *in.TopologySpread.DeepCopy()
	}
	parts.gates = slices.DeleteFunc(slices.Clone(in.SchedulingGates), func(gate string) bool { return len(validation.IsQualifiedName(gate)) > 0 })
	return parts
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

// GivesToPods reports whether a policy gives something to pods.
func (s *Set) GivesToPods() bool {
	return s != nil && !s.pods.empty()
}

// GivesToClaims reports whether a policy gives tolerations to claims.
func (s *Set) GivesToClaims() bool {
	return s != nil && !s.claims.empty()
}

// match is a compiled match.
type match struct {
	namespaces selector.Namespaces
	// The selectors are nil where there is none.
	namespaceSelector, selector labels.Selector
	resources, classes          sets.Set[string]
	conditions                  cel.Conditions
}

// compileMatch compiles a match whose selectors can be read. A name or a prefix with a fault
// matches no namespace.
func compileMatch(in *v1alpha1.PlacementMatch) match {
	return match{
		namespaces:        selector.CompileNamespaces(in.Namespaces),
		namespaceSelector: selector.CompileLabels(in.NamespaceSelector),
		selector:          selector.CompileLabels(in.PodSelector),
		resources:         sets.New(in.Resources...),
		classes:           sets.New(in.DeviceClasses...),
		conditions:        cel.CompileConditions(in.MatchConditions),
	}
}
