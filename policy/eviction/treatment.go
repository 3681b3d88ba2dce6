package eviction

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Taint is a taint because of which a pod has to leave.
type Taint struct {
	Target v1alpha1.TaintTarget // empty is Node
	// Driver is that of the device; empty for a node.
	Driver     string
	Key, Value string
	Effect     corev1.TaintEffect
}

// Subject is a pod that has to leave.
type Subject struct {
	Namespace string
	// NamespaceLabels are those of the namespace, if NamespaceKnown. Nil is none.
	NamespaceLabels labels.Labels
	NamespaceKnown  bool
	// Labels are those of the pod. Nil is none.
	Labels            labels.Labels
	PriorityClassName string
}

// Treatment is how an eviction is carried out. The zero Treatment is as Kubernetes
// does it: the pod is deleted at once.
type Treatment struct {
	// Policy governs the eviction; nil when none does.
	Policy *Policy
	// Paces and Breakers are the policies whose pace and whose breaker bind the
	// eviction, in the order in which they govern, which is the same for every
	// eviction. They are not to be written to.
	Paces, Breakers []*Policy
	// Protected is true when the policy that governs protects the pod. That it is
	// paused is told by Policy.Paused.
	Protected bool
}

// NamespaceUnknownError says that it cannot be told who governs an eviction, because
// a policy asks for labels of a namespace that are not known. It is to be asked again
// later.
type NamespaceUnknownError struct {
	Namespace string
	// Policy is the name of the policy that asks.
	Policy string
}

// Error implements error.
func (e *NamespaceUnknownError) Error() string {
	return fmt.Sprintf("EvictionPolicy/%s asks for labels of namespace %q, which are not known", e.Policy, e.Namespace)
}

// For returns how a pod leaves because of a taint. The only error is a
// NamespaceUnknownError; then nothing is known of the treatment, and the pod stays
// until it is.
func (s *Set) For(taint *Taint, subject *Subject) (Treatment, error) {
	var t Treatment
	if s.Len() == 0 || slices.Contains(s.off, selector.TargetOf(taint.Target)) {
		return t, nil
	}
	exact := selector.Toleration{Target: taint.Target, Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value}
	for position := range s.index.Candidates(&exact) {
		p := s.Policies[position]
		if t.Policy != nil && !p.bindsSelected() || !p.selectsTaint(taint) {
			continue
		}
		selects, err := p.selects(subject)
		if err != nil {
			return Treatment{}, err
		}
		if selects {
			t.take(p, subject)
		}
	}
	return t, nil
}

// bindsSelected reports whether the policy bounds evictions that another one governs.
func (p *Policy) bindsSelected() bool {
	return p.Pace != nil && p.Pace.Scope == v1alpha1.LimitScopeSelected ||
		p.Breaker != nil && p.Breaker.Scope == v1alpha1.LimitScopeSelected
}

// selects reports whether the policy selects the pod.
func (p *Policy) selects(subject *Subject) (bool, error) {
	switch {
	case p.pods != nil && !p.pods.Matches(selector.Labels(subject.Labels)):
		return false, nil
	case p.namespaces == nil:
		return true, nil
	case !subject.NamespaceKnown:
		return false, &NamespaceUnknownError{Namespace: subject.Namespace, Policy: p.Name}
	default:
		return p.namespaces.Matches(selector.Labels(subject.NamespaceLabels)), nil
	}
}

// take adds the next policy that selects the eviction. The first governs it.
func (t *Treatment) take(p *Policy, subject *Subject) {
	governs := t.Policy == nil
	if governs {
		t.Policy, t.Protected = p, p.protects.covers(subject)
	}
	if p.Pace != nil && (governs || p.Pace.Scope == v1alpha1.LimitScopeSelected) {
		t.Paces = with(t.Paces, p)
	}
	if p.Breaker != nil && (governs || p.Breaker.Scope == v1alpha1.LimitScopeSelected) {
		t.Breakers = with(t.Breakers, p)
	}
}

// with returns the list and p. A list of one is not made anew for each eviction; that
// it has no room left makes append copy it.
func with(list []*Policy, p *Policy) []*Policy {
	if len(list) == 0 {
		return p.alone
	}
	return append(list, p)
}
