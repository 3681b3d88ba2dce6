package toleration

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of policies, ready to judge tolerations. It does not change
// and is safe for concurrent use. The nil Set and the zero Set hold no policy
// and allow everything.
type Set struct {
	// policies are sorted by name, so that every replica says the same.
	policies []*compiled
	index    selector.Index
	problems map[string]field.ErrorList
	// byUID finds the policies that are taken over by the next set.
	byUID map[types.UID]*compiled
	// labels says that labels of pods matter to some policy.
	labels bool
}

// compiled is a policy, read once. It does not change.
type compiled struct {
	name       string
	uid        types.UID
	generation int64

	guards []selector.Selector
	// grants are in the order in which they are asked: first those that cost least.
	grants []grant
	// dynamic says that some grant is more than names and selectors.
	dynamic bool
	// personal says that some grant is about who asks, not about the namespace alone.
	personal bool

	conditions  cel.Conditions
	conditional bool

	actions []v1alpha1.ValidationAction
	denies  bool

	message    string
	expression *cel.Program // of the message; nil for none
	remedy     string

	problems field.ErrorList
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still guards what it can: a grant with a fault grants
// nothing, a condition with a fault holds, and an action that is not known is Deny.
// Problems names the faults.
func Compile(policies []v1alpha1.TolerationPolicy) *Set {
	return (*Set)(nil).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed: to compile expressions is what takes time.
func (s *Set) Next(policies []v1alpha1.TolerationPolicy) *Set {
	order := make([]*v1alpha1.TolerationPolicy, len(policies))
	for i := range policies {
		order[i] = &policies[i]
	}
	slices.SortStableFunc(order, func(a, b *v1alpha1.TolerationPolicy) int { return cmp.Compare(a.Name, b.Name) })

	next := &Set{
		policies: make([]*compiled, 0, len(order)),
		problems: map[string]field.ErrorList{},
		byUID:    make(map[types.UID]*compiled, len(order)),
	}
	for position, p := range order {
		c := s.unchanged(p)
		if c == nil {
			c = compile(p)
		}
		if len(c.problems) > 0 {
			next.problems[c.name] = c.problems
		}
		if c.uid != "" {
			next.byUID[c.uid] = c
		}
		for i := range c.guards {
			next.index.Add(position, &c.guards[i])
		}
		next.labels = next.labels || slices.ContainsFunc(c.grants, func(g grant) bool { return g.object != nil })
		next.policies = append(next.policies, c)
	}
	next.index.Clip()
	return next
}

// unchanged returns the policy as it was compiled before, or nil.
func (s *Set) unchanged(p *v1alpha1.TolerationPolicy) *compiled {
	if s == nil {
		return nil
	}
	if c, ok := s.byUID[p.UID]; ok && c.generation == p.Generation && c.name == p.Name {
		return c
	}
	return nil
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

// guardOf returns the first guard that t comes under, or nil.
func (c *compiled) guardOf(t *selector.Toleration) *selector.Selector {
	for i := range c.guards {
		if c.guards[i].Could(t) {
			return &c.guards[i]
		}
	}
	return nil
}

// outlasted returns the first guard with a NoExecute taint that t tolerates, or
// nil.
func (c *compiled) outlasted(t *selector.Toleration) *selector.Selector {
	for i := range c.guards {
		if c.guards[i].CouldOutlast(t) {
			return &c.guards[i]
		}
	}
	return nil
}
