package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

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
	bounded []corev1.Toleration
}

// compiled is a compiled policy: the part of its match that can be read, and its valid parts for
// pods and claims.
type compiled struct {
	name     string
	match    match
	criteria []criterion
	// pods says that the policy gives something to pods.
	pods        bool
	tolerations []corev1.Toleration
	// nodes are the requirements on nodes, labels the labels of those that the nodeSelector makes.
	nodes  requirements
	labels []string
	spread v1alpha1.TopologySpreadDefaults
	gates  []string // nil for none
	claim  []corev1.Toleration
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
		if c.pods {
			next.pods.add(position, c.criteria)
		}
		if len(c.claim) > 0 {
			next.claims.add(position, c.criteria)
			next.bounded = append(next.bounded, slices.DeleteFunc(slices.Clone(c.claim), unbounded)...)
		}
	}
	return next
}

// compile compiles a policy with the part of its match that can be read. Where that is not
// the whole of it, the policy gives gates alone.
func compile(p *v1alpha1.PlacementPolicy) (*compiled, field.ErrorList) {
	m, whole := readable(&p.Spec.Match)
	in := ptr.Deref(p.Spec.Pod, v1alpha1.PodPlacement{})
	c := &compiled{name: p.Name, criteria: criteriaOf(&m), match: match{
		namespaces:        selector.CompileNamespaces(m.Namespaces), // a name or a prefix with a fault matches none
		namespaceSelector: selector.CompileLabels(m.NamespaceSelector),
		selector:          selector.CompileLabels(m.PodSelector),
		resources:         sets.New(m.Resources...),
		classes:           sets.New(m.DeviceClasses...),
		conditions:        cel.CompileConditions(m.MatchConditions),
	}}
	c.gates = slices.DeleteFunc(slices.Clone(in.SchedulingGates), func(gate string) bool { return len(validation.IsQualifiedName(gate)) > 0 })
	c.pods = len(c.gates) > 0
	if whole {
		c.pods = p.Spec.Pod != nil || p.Spec.Guard != nil
		c.compileNodes(&in)
		tolerations := slices.Clone(in.Tolerations)
		if _, granted := matchGrant(&p.Spec.Match); granted && p.Spec.Guard != nil { // else the guard would refuse them
			for _, t := range p.Spec.Guard.Taints {
				tolerations = append(tolerations, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect})
			}
		}
		for _, t := range tolerations {
			if len(validateToleration(&t, nil)) == 0 {
				c.tolerations = append(c.tolerations, *t.DeepCopy())
			}
		}
		if in.TopologySpread != nil && len(validateSpread(in.TopologySpread, nil)) == 0 {
			c.spread = *in.TopologySpread.DeepCopy()
		}
		for _, t := range ptr.Deref(p.Spec.Claim, v1alpha1.ClaimPlacement{}).Tolerations {
			if len(validateDeviceToleration(&t, nil)) == 0 {
				c.claim = append(c.claim, *selector.FromDevice(t.DeepCopy()))
			}
		}
	}
	return c, ValidatePolicy(p)
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

// GivesToPods reports whether a policy gives something to pods.
func (s *Set) GivesToPods() bool { return s != nil && !s.pods.empty() }

// GivesToClaims reports whether a policy gives tolerations to claims.
func (s *Set) GivesToClaims() bool { return s != nil && !s.claims.empty() }

// match is a compiled match.
type match struct {
	namespaces selector.Namespaces
	// The selectors are nil where there is none.
	namespaceSelector, selector labels.Selector
	resources, classes          sets.Set[string]
	conditions                  cel.Conditions
}
