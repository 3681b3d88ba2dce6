package toleration

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of TolerationPolicies, ready to judge tolerations. It does not change
// and is safe for concurrent use. The nil Set and the zero Set hold no policy and allow
// everything.
type Set struct {
	policy.Set[*compiled]
	index selector.Index
	// labels says that the labels of pods matter to some policy.
	labels bool
}

// compiled is a policy, read once. It does not change.
type compiled struct {
	name   string
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
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.TolerationPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, policy.ByName, compile)}
	for position, c := range next.Policies {
		for i := range c.guards {
			next.index.Add(position, &c.guards[i])
		}
		next.labels = next.labels || slices.ContainsFunc(c.grants, func(g grant) bool { return g.object != nil })
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
