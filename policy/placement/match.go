package placement

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// Subject is a pod or a claim that is created, as policies are matched with it.
type Subject struct {
	// Review is what expressions see.
	Review *cel.Review
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
	// pod, request devices of. It is asked when a policy wants to know, once. With a
	// MissingClaimError they are those that are known.
	DeviceClasses func(ctx context.Context) ([]string, error)
}

// MissingClaimError says that a pod refers to a claim, or to a template of claims, that does
// not exist: nobody knows which devices it will request. The scheduler holds the pod back
// until it does, and looks at no policy then.
type MissingClaimError struct {
	// Kind is ResourceClaim or ResourceClaimTemplate.
	Kind, Name string
}

// Error implements error.
func (e *MissingClaimError) Error() string { return e.Kind + " " + e.Name + " does not exist" }

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
	conditions                  cel.Conditions
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
		m.conditions = cel.CompileConditions(cel.OfRequest, in.MatchConditions)
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
// not be told, because an expression failed or a claim does not exist.
type Matching struct {
	// policies give all that they have, gating their gates. The latter may be for the
	// object or not: whoever creates a pod can make an expression fail, or create its claim
	// later, and must not get past a gate by that.
	policies, gating []*compiled
	failed           []failure
}

// failure says why it could not be told whether a policy is for an object.
type failure struct {
	policy *compiled
	// problem is that of a matchCondition; empty where a claim is missing.
	problem string
	missing *MissingClaimError
}

// failureOf returns the failure that an error of matches is; false for any other.
func failureOf(c *compiled, err error) (failure, bool) {
	if failed, ok := errors.AsType[*cel.FailedError](err); ok {
		return failure{policy: c, problem: failed.Problem}, true
	}
	if missing, ok := errors.AsType[*MissingClaimError](err); ok {
		return failure{policy: c, missing: missing}, true
	}
	return failure{}, false
}

// gives says why a policy gives no more than what is said.
func (f *failure) gives(what string) string {
	if f.missing != nil {
		return f.unknown() + ", so the policy gives " + what
	}
	return "a matchCondition of the policy failed, so it gives " + what + ": " + printable(f.problem, maxProblem)
}

// unknown says that a claim is missing.
func (f *failure) unknown() string {
	return printable(f.missing.Error(), maxProblem) + ", and nobody knows which devices it will request"
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
		c := s.Policies[position]
		ok, err := asking.matches(ctx, &c.match)
		switch {
		case ok:
			found.policies = append(found.policies, c)
		case err != nil:
			failed, ok := failureOf(c, err)
			if !ok {
				return Matching{}, err
			}
			found.failed = append(found.failed, failed)
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
	// missing is a claim whose classes are not known.
	missing *MissingClaimError
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
		if a.missing != nil {
			for _, all := range x.byClass {
				positions = append(positions, all...)
			}
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
	if errors.As(err, &a.missing) {
		err = nil
	}
	a.classesAsked = err == nil
	return a.classes, err
}

// matches asks what costs least first, and nobody more than once. With a MissingClaimError all
// but the classes fits.
func (a *asking) matches(ctx context.Context, m *match) (bool, error) {
	s := a.subject
	if !m.selects(s) {
		return false, nil
	}
	if m.resources != nil {
		names, err := a.resourceNames()
		if err != nil || !holdsAny(m.resources, names) {
			return false, err
		}
	}
	unknown := false
	if m.classes != nil {
		names, err := a.classNames(ctx)
		if unknown = !holdsAny(m.classes, names); err != nil || unknown && a.missing == nil {
			return false, err
		}
	}
	if m.conditional {
		if ok, err := m.conditions.Match(ctx, s.Review, &cel.Judged{}); err != nil || !ok {
			return false, err
		}
	}
	if unknown {
		return false, a.missing
	}
	return true, nil
}

// selects reports whether the namespace and the labels of a subject fit.
func (m *match) selects(s *Subject) bool {
	return (m.anyNamespace || m.named(s.Namespace)) &&
		(m.namespaceSelector == nil || s.NamespaceLabels != nil && m.namespaceSelector.Matches(labels.Set(s.NamespaceLabels))) &&
		(m.selector == nil || m.selector.Matches(labels.Set(s.Labels)))
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
