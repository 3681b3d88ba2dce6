package tolerations

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Set is a snapshot of policies, ready to judge tolerations. It does not change
// and is safe for concurrent use. The nil Set and the zero Set hold no policy
// and allow everything.
type Set struct {
	// policies are sorted by name, so that every replica says the same.
	policies []compiled
	index    index
	problems map[string]field.ErrorList
}

// compiled is a policy, read once.
type compiled struct {
	name    string
	guards  []guard
	grants  []grant
	actions []v1alpha1.ValidationAction
	denies  bool
	message string
	remedy  string
	// partial says that some of the policy is not in force.
	partial bool
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still guards what it can: a selector of device
// taints guards no node taint, a grant with a fault grants nothing, match
// conditions hold, and an action that is not known is Deny. Problems names the
// faults.
func Compile(policies []v1alpha1.TolerationPolicy) *Set {
	order := make([]*v1alpha1.TolerationPolicy, len(policies))
	for i := range policies {
		order[i] = &policies[i]
	}
	slices.SortStableFunc(order, func(a, b *v1alpha1.TolerationPolicy) int { return cmp.Compare(a.Name, b.Name) })

	s := &Set{policies: make([]compiled, 0, len(order)), index: newIndex(), problems: map[string]field.ErrorList{}}
	for position, p := range order {
		errs := ValidatePolicy(p)
		if len(errs) > 0 {
			s.problems[p.Name] = errs
		}
		c := compile(p, len(errs) > 0)
		for i := range c.guards {
			s.index.add(position, &c.guards[i])
		}
		s.policies = append(s.policies, c)
	}
	s.index.clip()
	return s
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.policies)
}

// Problems returns, by the name of the policy, why a policy is not fully in
// force. Policies without a fault are left out.
func (s *Set) Problems() map[string]field.ErrorList {
	if s == nil {
		return nil
	}
	return maps.Clone(s.problems)
}

func compile(p *v1alpha1.TolerationPolicy, partial bool) compiled {
	c := compiled{
		name:    p.Name,
		actions: compileActions(p.Spec.ValidationActions),
		message: strings.TrimSpace(word(p.Spec.Message, maxFinding)),
		partial: partial,
	}
	c.denies = len(c.actions) == 0 || slices.Contains(c.actions, v1alpha1.Deny)
	for i := range p.Spec.Taints {
		if sel := &p.Spec.Taints[i]; sel.Target != v1alpha1.TaintTargetDevice {
			c.guards = append(c.guards, newGuard(sel))
		}
	}
	var granted []string
	for i := range p.Spec.Grants {
		in := &p.Spec.Grants[i]
		if len(validateGrant(in, field.NewPath("grant"))) > 0 {
			continue
		}
		g, err := newGrant(in)
		if err != nil {
			continue // validateGrant parses the selector too, so it has said so
		}
		c.grants = append(c.grants, g)
		granted = append(granted, grantWords(in))
	}
	c.remedy = remedy(granted)
	return c
}

// compileActions returns the actions in a fixed order, or none, which is Deny,
// where one of them is unknown.
func compileActions(actions []v1alpha1.ValidationAction) []v1alpha1.ValidationAction {
	for _, action := range actions {
		if !knownAction(action) {
			return nil
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(actions)))
}

func remedy(granted []string) string {
	if len(granted) == 0 {
		return "nobody is allowed to tolerate it"
	}
	return word("allowed in "+list(granted, " or ", maxRemedy), maxRemedy)
}

// guardOf returns the first guard that a comes under, or nil.
func (c *compiled) guardOf(a *ask) *guard {
	for i := range c.guards {
		if c.guards[i].could(a) {
			return &c.guards[i]
		}
	}
	return nil
}

// outlasted returns the first guard with a NoExecute taint that a tolerates, or
// nil.
func (c *compiled) outlasted(a *ask) *guard {
	for i := range c.guards {
		if c.guards[i].couldOutlast(a) {
			return &c.guards[i]
		}
	}
	return nil
}

// allowance returns what the policy lets the namespace do.
func (c *compiled) allowance(namespace string, known map[string]string) allowance {
	var a allowance
	for i := range c.grants {
		if c.grants[i].covers(namespace, known) {
			a = a.better(c.grants[i].limit)
		}
	}
	return a
}
