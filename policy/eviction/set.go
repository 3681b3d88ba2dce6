package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	// off are the targets whose taints the policies do not apply to.
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
	next.index = selector.IndexOf(next.Policies, func(p *Policy) []selector.Selector { return p.taints })
	for _, p := range next.Policies {
		for i := range p.taints {
			if p.WindowSeconds != nil {
				next.windows = append(next.windows, Window{p.taints[i].Target(), p.taints[i].Key(), *p.WindowSeconds, p})
			}
		}
	}
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
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

// Without returns the set of a cluster where another controller evicts because of the taints of
// some targets, without policies: its For returns the zero Treatment for them.
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

// Window is a key of which a policy gives pods time in mode Window.
type Window struct {
	Target  v1alpha1.TaintTarget // Node or Device
	Key     string
	Seconds int64
	Policy  *Policy
}

// Windows returns all windows, those of one target and key together, and of these the
// one whose policy governs first. They are not to be written to.
func (s *Set) Windows() []Window {
	if s == nil {
		return nil
	}
	return s.windows
}

// HasWindow reports whether a policy has a window for the NoExecute taints with a key.
// Whether there is a pod that it selects is another matter.
func (s *Set) HasWindow(target v1alpha1.TaintTarget, key string) bool {
	target = selector.TargetOf(target)
	return slices.ContainsFunc(s.Windows(), func(w Window) bool { return w.Target == target && w.Key == key })
}

// WindowsFor returns the tolerations that a pod, or with target Device a claim, gets in
// mode Window, sorted by key. Of each key it is the window of the policy that
// governs the taints with that key; none if that policy has no window. A policy for
// only some values or drivers does not count here, since the toleration is of all of
// them (KEP-5055 knows none of a driver).
//
// The pods of a claim are not known when it is created. So a policy with a podSelector
// is not asked about claims, and cannot have a window for devices.
//
// The only error is a NamespaceUnknownError.
func (s *Set) WindowsFor(target v1alpha1.TaintTarget, subject *Subject) ([]v1alpha1.WindowToleration, error) {
	target = selector.TargetOf(target)
	var given []v1alpha1.WindowToleration
	last := ""
	for _, w := range s.Windows() {
		if w.Target != target || w.Key == last {
			continue
		}
		last = w.Key
		p, err := s.governing(target, w.Key, subject)
		if err != nil {
			return nil, err
		}
		if p != nil && p.WindowSeconds != nil {
			given = append(given, v1alpha1.WindowToleration{Key: w.Key, Seconds: *p.WindowSeconds})
		}
	}
	return given, nil
}

// governing returns the policy that governs the evictions of a subject because of
// taints with a key, of whatever value and driver; nil for none.
func (s *Set) governing(target v1alpha1.TaintTarget, key string, subject *Subject) (*Policy, error) {
	every := selector.Toleration{Target: target, Key: key, Operator: corev1.TolerationOpExists}
	for position := range s.index.Candidates(&every) {
		p := s.Policies[position]
		selectsEvery := slices.ContainsFunc(p.taints, func(sel selector.Selector) bool {
			return sel.SelectsEvery(target, key, corev1.TaintEffectNoExecute)
		})
		if !selectsEvery || target == v1alpha1.TaintTargetDevice && p.pods != nil {
			continue
		}
		if selects, err := p.selects(subject); selects || err != nil {
			return p, err
		}
	}
	return nil, nil
}
