package gate

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of GatePolicies. It does not change and is safe for concurrent
// use. The nil Set and the zero Set allow everything.
type Set struct {
	policy.Set[*compiled]
	// guards holds, by gate or by "prefix/*", the positions of the policies that
	// guard it.
	guards map[string][]int
}

// compiled is a compiled policy.
type compiled struct {
	ref     string
	gates   []string // each once
	owners  policy.SubjectSet
	actions []v1alpha1.ValidationAction
	denies  bool
	message string
	remedy  string
}

// maxGate is the length at which the name of a gate is cut.
const maxGate = 128

// anyBelow ends a pattern that matches every gate below a prefix.
const anyBelow = "/*"

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still guards what it can: a gate that cannot be one
// guards nothing, an owner with a fault owns nothing, and an action that is not
// known is Deny. Problems names the faults.
func Compile(policies []v1alpha1.GatePolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.GatePolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile), guards: map[string][]int{}}
	for position, c := range next.Policies {
		for _, gate := range c.gates {
			next.guards[gate] = append(next.guards[gate], position)
		}
	}
	return next
}

func compile(p *v1alpha1.GatePolicy) (*compiled, field.ErrorList) {
	c := &compiled{
		ref:     "GatePolicy/" + p.Name,
		gates:   slices.Compact(slices.Sorted(slices.Values(p.Spec.Gates))),
		owners:  policy.CompileSubjects(p.Spec.Owners),
		actions: policy.Actions(p.Spec.ValidationActions),
		message: strings.TrimSpace(policy.Short(p.Spec.Message, policy.MaxFinding)),
		remedy:  remedy(p.Spec.Owners),
	}
	c.denies = policy.Denies(c.actions)
	problems := ValidatePolicy(p)
	if len(problems) > 0 {
		c.remedy += " (the policy is not fully in force, see its status)"
	}
	return c, problems
}

// remedy describes the owners. Subjects with a fault own nothing and are left out.
func remedy(owners []rbacv1.Subject) string {
	sound := slices.DeleteFunc(slices.Clone(owners), func(s rbacv1.Subject) bool { return len(policy.ValidateSubjects([]rbacv1.Subject{s}, nil)) > 0 })
	if len(sound) == 0 {
		return "the policy names no owner, so nobody may"
	}
	return "allowed to " + policy.ShortSubjects(sound)
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

// guarding returns the positions of the policies that guard a gate, in order.
func (s *Set) guarding(gate string) []int {
	positions := s.guards[gate]
	if prefix, _, ok := strings.Cut(gate, "/"); ok {
		positions = slices.Concat(positions, s.guards[prefix+anyBelow])
	}
	return slices.Compact(slices.Sorted(slices.Values(positions)))
}

// maxGates is a limit of the schema. It holds for stored objects that it did not validate, too.
const maxGates = 64

// ValidatePolicy returns the faults of a policy. A policy without faults is fully in force.
func ValidatePolicy(p *v1alpha1.GatePolicy) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		policy.Check(len(p.Spec.Gates) > 0, field.Required(spec.Child("gates"), "a policy guards at least one gate")),
		selector.ValidateTexts(p.Spec.Gates, maxGates, spec.Child("gates"), validateGate),
		policy.ValidateSubjects(p.Spec.Owners, spec.Child("owners")),
		policy.ValidateActions(p.Spec.ValidationActions, spec.Child("validationActions")),
		policy.ValidateMessage(p.Spec.Message, spec.Child("message")))
}

// validateGate returns why Kubernetes would not accept a gate (SD-01).
func validateGate(gate string) []string {
	prefix, pattern := strings.CutSuffix(gate, anyBelow)
	switch {
	case pattern:
		return validation.IsDNS1123Subdomain(prefix)
	case strings.Contains(gate, "*"):
		return []string{`name a gate, or all gates below a prefix as "prefix/*"`}
	default:
		return validation.IsQualifiedName(gate)
	}
}
