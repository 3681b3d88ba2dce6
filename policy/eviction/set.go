package eviction

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Set is a snapshot of EvictionPolicies. It does not change and is safe for concurrent
// use. The nil Set and the zero Set select nothing: then all is as Kubernetes does it.
type Set struct {
	// The policies are in the order in which they govern: of two that select the same
	// eviction the first does.
	policy.Set[*Policy]
	index   selector.Index
	windows []Window
	// off are the targets because of whose taints nobody is treated by policies.
	off []v1alpha1.TaintTarget
}

// Compile returns the set of policies. It keeps nothing of what it is given.
//
// A policy that is not valid still governs what it can, and every doubt counts for the
// pod: nobody is evicted because of a fault. If taints, podSelector or
// namespaceSelector are not valid, the policy selects all that may be meant, and holds
// what it governs. If protect.podSelector cannot be read, or is empty, all that the
// policy governs is protected. A method that is not known is Evict, a scope Selected. Limits
// that are out of bounds are the next that are within, a breaker without any limit
// lets one pod go in a window; a deleteAfter with a fault never comes, and a window
// with a fault is none. Problems names the faults.
func Compile(policies []v1alpha1.EvictionPolicy) *Set {
	return new(Set).Next(policies)
}

// Next returns the set of policies as Compile does, and takes over from s those that
// have not changed.
func (s *Set) Next(policies []v1alpha1.EvictionPolicy) *Set {
	if s == nil {
		s = new(Set)
	}
	next := &Set{Set: policy.CompileSet(policies, &s.Set, governsFirst, compile)}
	for position, p := range next.Policies {
		for i := range p.taints {
			next.index.Add(position, &p.taints[i])
		}
		next.windows = append(next.windows, windowsOf(p)...)
	}
	next.index.Clip()
	slices.SortStableFunc(next.windows, func(a, b Window) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Key, b.Key))
	})
	return next
}

// governsFirst is negative when a governs what both select: the higher priority, then
// the older, then the first by name. The last word is the UID's, for lists that hold a
// name twice.
func governsFirst(a, b *v1alpha1.EvictionPolicy) int {
	return cmp.Or(
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

// Without returns the set of a cluster where somebody else evicts because of the taints of
// some targets, and asks no policies: its For returns the zero Treatment for them.
func (s *Set) Without(targets ...v1alpha1.TaintTarget) *Set {
	if s == nil || len(targets) == 0 {
		return s
	}
	without := *s
	without.off = targets
	return &without
}

// Len returns how many policies the set holds.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.Policies)
}

// ByUID returns the policy with a UID, or nil.
func (s *Set) ByUID(uid types.UID) *Policy {
	if s == nil {
		return nil
	}
	p, _ := s.Set.ByUID(uid)
	return p
}

// All returns the policies in the order in which they govern.
func (s *Set) All() []*Policy {
	if s == nil {
		return nil
	}
	return slices.Clone(s.Policies)
}
