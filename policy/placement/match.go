package placement

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/expression"
)

// Subject is a pod or a claim that is created, as policies are matched with it.
type Subject struct {
	// Review is what expressions see.
	Review *expression.Review
	// Namespace and NamespaceLabels are the namespace of the object. Labels that
	// could not be had are nil: they satisfy no selector.
	Namespace       string
	NamespaceLabels map[string]string
	// Labels are those of the pod, or of the claim, or of the claim that a template
	// is for.
	Labels map[string]string
	// Resources returns the names of the resources that a pod requests. It is asked
	// when a policy wants to know, once. Nil for claims, which request none.
	Resources func() ([]string, error)
	// DeviceClasses returns the names of the classes that a claim, or the claims of a
	// pod, request devices of. It is asked when a policy wants to know, once.
	DeviceClasses func(ctx context.Context) ([]string, error)
}

// match is what a policy asks of an object, read once.
type match struct {
	// anyNamespace says that names and prefixes are not asked.
	anyNamespace bool
	names        map[string]struct{}
	prefixes     []string
	// The selectors are nil where there is none.
	namespaceSelector, selector labels.Selector
	resources, classes          map[string]struct{}
	conditional                 bool
	conditions                  expression.Conditions
}

// newMatch reads a match whose selectors can be read. A name or a prefix with a fault
// is taken as it is written: nothing has such a name.
func newMatch(in *v1alpha1.PlacementMatch) match {
	m := match{
		anyNamespace:      len(in.Namespaces) == 0,
		namespaceSelector: selectorOf(in.NamespaceSelector),
		selector:          selectorOf(in.PodSelector),
		resources:         setOf(in.Resources),
		classes:           setOf(in.DeviceClasses),
		conditional:       len(in.MatchConditions) > 0,
	}
	if m.conditional {
		m.conditions = expression.CompileConditions(expression.OfRequest, in.MatchConditions)
	}
	for _, pattern := range in.Namespaces {
		prefix, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			if m.names == nil {
				m.names = map[string]struct{}{}
			}
			m.names[pattern] = struct{}{}
		case prefix == "":
			m.anyNamespace = true
		default:
			m.prefixes = append(m.prefixes, prefix)
		}
	}
	return m
}

// selectorOf returns nil for a selector that selects everything.
func selectorOf(in *metav1.LabelSelector) labels.Selector {
	if in == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return labels.Nothing() // readable has parsed it, so this is never reached
	}
	if selector.Empty() {
		return nil
	}
	return selector
}

func setOf(items []string) map[string]struct{} {
	if len(items) == 0 {
		return nil
	}
	set := make(map[string]struct{}, len(items))
	for _, item := range items {
		set[item] = struct{}{}
	}
	return set
}

// Matching are the policies that are for an object, and those of which it could
// not be told because an expression failed.
type Matching struct {
	// policies give all that they have, gating their gates. The latter may be for the
	// object or not: whoever creates a pod can make an expression fail, and must not
	// get past a gate by that.
	policies, gating []*compiled
	failed           []failure
}

// failure says why it could not be told whether a policy is for an object.
type failure struct {
	policy  *compiled
	problem string
}

// Empty reports whether there is nothing to give and nothing to say.
func (m Matching) Empty() bool { return len(m.policies) == 0 && len(m.failed) == 0 }

// MatchPod returns the policies that give something to a pod. An error means that
// it could not be told, through no fault of a policy.
func (s *Set) MatchPod(ctx context.Context, subject *Subject) (Matching, error) {
	if s == nil {
		return Matching{}, nil
	}
	return s.matching(ctx, &s.pods, subject)
}

// MatchClaim returns the policies that give something to a claim, or to the claims
// of a template.
func (s *Set) MatchClaim(ctx context.Context, subject *Subject) (Matching, error) {
	if s == nil {
		return Matching{}, nil
	}
	return s.matching(ctx, &s.claims, subject)
}

func (s *Set) matching(ctx context.Context, x *index, subject *Subject) (Matching, error) {
	if x.empty() {
		return Matching{}, nil
	}
	asking := asking{subject: subject}
	positions, err := asking.candidates(ctx, x)
	if err != nil {
		return Matching{}, err
	}
	var found Matching
	for _, position := range positions {
		c := &s.policies[position]
		ok, err := asking.matches(ctx, &c.match)
		switch {
		case ok:
			found.policies = append(found.policies, c)
		case err != nil:
			failed := (*expression.FailedError)(nil)
			if !errors.As(err, &failed) {
				return Matching{}, err
			}
			found.failed = append(found.failed, failure{policy: c, problem: failed.Problem})
		default:
			continue
		}
		if c.gates() != nil {
			found.gating = append(found.gating, c)
		}
	}
	return found, nil
}

// asking remembers what was asked about a subject.
type asking struct {
	subject                      *Subject
	resources, classes           []string
	resourcesAsked, classesAsked bool
}

// candidates returns the policies that may be for the subject, ascending.
func (a *asking) candidates(ctx context.Context, x *index) ([]int, error) {
	positions := x.told(a.subject)
	if len(x.byResource) > 0 {
		names, err := a.resourceNames()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			positions = append(positions, x.byResource[name]...)
		}
	}
	if len(x.byClass) > 0 {
		names, err := a.classNames(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			positions = append(positions, x.byClass[name]...)
		}
	}
	slices.Sort(positions)
	return slices.Compact(positions), nil
}

func (a *asking) resourceNames() ([]string, error) {
	if a.resourcesAsked || a.subject.Resources == nil {
		return a.resources, nil
	}
	var err error
	a.resources, err = a.subject.Resources()
	a.resourcesAsked = err == nil
	return a.resources, err
}

func (a *asking) classNames(ctx context.Context) ([]string, error) {
	if a.classesAsked || a.subject.DeviceClasses == nil {
		return a.classes, nil
	}
	var err error
	a.classes, err = a.subject.DeviceClasses(ctx)
	a.classesAsked = err == nil
	return a.classes, err
}

// matches asks what costs least first, and nobody more than once.
func (a *asking) matches(ctx context.Context, m *match) (bool, error) {
	s := a.subject
	switch {
	case !m.anyNamespace && !m.named(s.Namespace),
		m.namespaceSelector != nil && (s.NamespaceLabels == nil || !m.namespaceSelector.Matches(labels.Set(s.NamespaceLabels))),
		m.selector != nil && !m.selector.Matches(labels.Set(s.Labels)):
		return false, nil
	}
	if m.resources != nil {
		names, err := a.resourceNames()
		if err != nil || !holdsAny(m.resources, names) {
			return false, err
		}
	}
	if m.classes != nil {
		names, err := a.classNames(ctx)
		if err != nil || !holdsAny(m.classes, names) {
			return false, err
		}
	}
	if !m.conditional {
		return true, nil
	}
	return m.conditions.Match(ctx, s.Review, &expression.Judged{})
}

func (m *match) named(namespace string) bool {
	if _, ok := m.names[namespace]; ok {
		return true
	}
	for _, prefix := range m.prefixes { // a closure would be allocated for each policy
		if strings.HasPrefix(namespace, prefix) {
			return true
		}
	}
	return false
}

func holdsAny(set map[string]struct{}, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := set[name]
		return ok
	})
}
