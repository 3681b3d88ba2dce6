package taint

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of TaintPolicies. It does not change and is safe for concurrent
// use. The nil Set and the zero Set allow everything and register nothing.
type Set struct {
	policy.Set[*compiled]
	index selector.Index
	// registering are the positions of the policies that give nodes taints.
	registering []int
}

// compiled is a policy, read once. It does not change.
type compiled struct {
	name       string
	problems   field.ErrorList
	taints     []selector.Selector
	setters    []setter
	conditions cel.Conditions
	registers  []registration
	limits     *v1alpha1.TaintLimits
	ttl        time.Duration // zero for none
	actions    []v1alpha1.ValidationAction
	message    string
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still governs what it can: a setter with a fault lets
// nobody set anything, match conditions with one hold, a registration with one
// registers nothing, limits hold as far as they say something, and an action that is
// not known is Deny. Problems names the faults.
func Compile(policies []v1alpha1.TaintPolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.TaintPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile)}
	for position, c := range next.Policies {
		for i := range c.taints {
			next.index.Add(position, &c.taints[i])
		}
		if len(c.registers) > 0 {
			next.registering = append(next.registering, position)
		}
	}
	next.index.Clip()
	return next
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

func compile(p *v1alpha1.TaintPolicy) (*compiled, field.ErrorList) {
	c := &compiled{
		name:       p.Name,
		problems:   validateRest(p),
		conditions: cel.CompileConditions(cel.OfRequest, p.Spec.MatchConditions),
		limits:     p.Spec.Limits.DeepCopy(),
		actions:    policy.Actions(p.Spec.ValidationActions),
		message:    strings.TrimSpace(policy.Short(p.Spec.Message, maxFinding)),
	}
	for i := range p.Spec.Taints {
		c.taints = append(c.taints, selector.Compile(&p.Spec.Taints[i]))
	}
	valid := len(c.problems) == 0
	setters := field.NewPath("spec", "setters")
	for i := range p.Spec.Setters {
		s, errs := readSetter(&p.Spec.Setters[i], setters.Index(i))
		if len(errs) == 0 {
			c.setters = append(c.setters, s)
		}
		c.problems = append(c.problems, errs...)
	}
	slices.SortStableFunc(c.setters, func(a, b setter) int { return cmp.Compare(a.cost(), b.cost()) })
	for i := range p.Spec.Register {
		if in := &p.Spec.Register[i]; valid || len(ValidateRegistration(in, nil)) == 0 {
			c.registers = append(c.registers, newRegistration(in))
		}
	}
	if p.Spec.TTL != nil && p.Spec.TTL.Duration >= minTTL {
		c.ttl = p.Spec.TTL.Duration
	}
	return c, c.problems
}

// governs reports whether the policy governs the taint.
func (c *compiled) governs(t Taint) bool {
	for i := range c.taints {
		if c.taints[i].Selects(t.Target, t.Driver, t.Key, t.Value, t.Effect) {
			return true
		}
	}
	return false
}

// seen returns the write as the policy sees it: a taint that comes to be governed is
// added, and one that is no longer governed is removed, also where it merely changes.
// So who may only change taints cannot change one out of the policy.
func (c *compiled) seen(w *Write) (operation v1alpha1.TaintOperation, ok bool) {
	before := w.Operation != v1alpha1.TaintAdd && c.governs(w.Old)
	after := w.Operation != v1alpha1.TaintRemove && c.governs(w.New)
	switch {
	case before && after:
		return v1alpha1.TaintChange, true
	case before:
		return v1alpha1.TaintRemove, true
	case after:
		return v1alpha1.TaintAdd, true
	default:
		return "", false
	}
}

// candidates returns the positions of the policies that may govern one of the writes,
// ascending.
func (s *Set) candidates(writes []Write) []int {
	if s.Len() == 0 {
		return nil
	}
	var positions []int
	add := func(t Taint) {
		cursor := s.index.Candidates(&selector.Toleration{
			Target: t.Target, Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value,
		})
		for position, ok := cursor.Next(); ok; position, ok = cursor.Next() {
			positions = append(positions, position)
		}
	}
	for i := range writes {
		w := &writes[i]
		if w.Operation != v1alpha1.TaintAdd {
			add(w.Old)
		}
		if w.Operation != v1alpha1.TaintRemove && (w.Operation == v1alpha1.TaintAdd || w.Old.Value != w.New.Value) {
			add(w.New)
		}
	}
	slices.Sort(positions)
	return slices.Compact(positions)
}

// policyRef is how findings name a policy.
func policyRef(name string) string { return policy.Ref("TaintPolicy", name) }
