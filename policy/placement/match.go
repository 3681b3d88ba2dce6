package placement

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
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
	// Resources returns the names of the resources that a pod requests. It is called at
	// most once, for a policy that needs them. Nil, or without names, for claims.
	Resources func() ([]string, error)
	// DeviceClasses returns the names of the classes that a claim, or the claims of a
	// pod, request devices of. It is called at most once, for a policy that needs them.
	// With a MissingClaimError they are those that are known.
	DeviceClasses func(ctx context.Context) ([]string, error)
}

// MissingClaimError is the error for a pod that refers to a ResourceClaim or
// ResourceClaimTemplate that does not exist, so that the requested devices are unknown. The
// scheduler holds the pod until the object exists; no policy is evaluated then.
type MissingClaimError struct {
	// Kind is ResourceClaim or ResourceClaimTemplate.
	Kind, Name string
}

// Error implements error.
func (e *MissingClaimError) Error() string { return e.Kind + " " + e.Name + " does not exist" }

// Matching are the policies that are for an object, and those that may be, because an
// expression failed or a claim does not exist.
type Matching struct {
	// policies give all their parts, gating their gates. The latter may not be for the object:
	// the author of a pod can make an expression fail, or create its claim later, and must
	// not get past a gate by that.
	policies, gating []*compiled
	failed           []failure
}

// failure is the reason why it is unknown whether a policy is for an object.
type failure struct {
	policy *compiled
	// problem is that of a matchCondition; with claim it is that a claim is missing.
	problem string
	claim   bool
}

// Empty reports whether there is nothing to give and nothing to report.
func (m Matching) Empty() bool { return len(m.policies) == 0 && len(m.failed) == 0 }

// MatchPod returns the policies that give something to a pod. An error is no fault of a
// policy.
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
	a := matcher{subject: subject}
	positions, err := a.candidates(ctx, x)
	if err != nil {
		return Matching{}, err
	}
	found := Matching{policies: make([]*compiled, 0, len(positions))}
	for _, position := range positions {
		c := s.Policies[position]
		ok, err := a.matches(ctx, &c.match)
		failed, isFailed := errors.AsType[*cel.FailedError](err)
		missing, noClaim := errors.AsType[*MissingClaimError](err)
		switch {
		case ok:
			found.policies = append(found.policies, c)
		case isFailed:
			found.failed = append(found.failed, failure{policy: c, problem: policy.Short(failed.Problem, maxProblem)})
		case noClaim:
			problem := policy.Short(missing.Error(), maxProblem) + ", and nobody knows which devices it will request"
			found.failed = append(found.failed, failure{policy: c, problem: problem, claim: true})
		case err != nil:
			return Matching{}, err
		default:
			continue
		}
		if c.gates != nil {
			found.gating = append(found.gating, c)
		}
	}
	return found, nil
}

// matcher caches the resources and classes of a subject.
type matcher struct {
	subject *Subject
	asked   [parts]bool
	known   [parts][]string
	// missing is a claim whose classes are not known.
	missing *MissingClaimError
}

// candidates returns the policies that may be for the subject, ascending. The list is not to be changed.
func (a *matcher) candidates(ctx context.Context, x *index) ([]int, error) {
	if x.empty() {
		return nil, nil
	}
	s, positions, mixed := a.subject, slices.Clip(x.loose), false
	add := func(of part, key, value string) {
		switch more := x.by[criterion{of, key, value}]; {
		case len(more) == 0:
		case len(positions) == 0:
			positions = slices.Clip(more) // The list of the index itself: it is not written to.
		default:
			positions, mixed = append(positions, more...), true
		}
	}
	add(ofNamespace, "", s.Namespace)
	for key, value := range s.NamespaceLabels {
		add(ofNamespaceLabel, key, value)
	}
	for key, value := range s.Labels {
		add(ofLabel, key, value)
	}
	for _, of := range []part{ofResource, ofClass} {
		if !x.has[of] {
			continue
		}
		names, err := a.names(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			add(of, "", name)
		}
	}
	if a.missing != nil {
		for c := range x.by {
			if c.of == ofClass {
				add(c.of, c.key, c.value)
			}
		}
	}
	if mixed {
		slices.Sort(positions)
		positions = slices.Compact(positions)
	}
	return positions, nil
}

// names returns the resources or the classes. With an error nothing is asked again.
func (a *matcher) names(ctx context.Context, of part) ([]string, error) {
	if a.asked[of] {
		return a.known[of], nil
	}
	a.asked[of] = true
	var err error
	switch {
	case of == ofResource && a.subject.Resources != nil:
		a.known[of], err = a.subject.Resources()
	case of == ofClass && a.subject.DeviceClasses != nil:
		a.known[of], err = a.subject.DeviceClasses(ctx)
		if missing, ok := errors.AsType[*MissingClaimError](err); ok { // with errors.As the matcher would be allocated
			a.missing, err = missing, nil
		}
	}
	return a.known[of], err
}

// matches evaluates the cheap parts of a match first. With a MissingClaimError all but the
// classes match.
func (a *matcher) matches(ctx context.Context, m *match) (bool, error) {
	s := a.subject
	if !m.selects(s) {
		return false, nil
	}
	if len(m.resources) > 0 {
		names, err := a.names(ctx, ofResource)
		if err != nil || !m.resources.HasAny(names...) {
			return false, err
		}
	}
	unknown := false
	if len(m.classes) > 0 {
		names, err := a.names(ctx, ofClass)
		if unknown = !m.classes.HasAny(names...); err != nil || unknown && a.missing == nil {
			return false, err
		}
	}
	if ok, err := m.conditions.Match(ctx, s.Review); !ok {
		return false, err
	}
	if unknown {
		return false, a.missing
	}
	return true, nil
}

// selects reports whether the namespace and the labels of a subject fit.
func (m *match) selects(s *Subject) bool {
	return m.namespaces.Has(s.Namespace) &&
		(m.namespaceSelector == nil || s.NamespaceLabels != nil && m.namespaceSelector.Matches(labels.Set(s.NamespaceLabels))) &&
		(m.selector == nil || m.selector.Matches(labels.Set(s.Labels)))
}

// PersonalPods returns the policies, by name, for which it depends on the requester whether
// they are for a pod: the rest of their match holds for the subject, and their
// matchConditions read the requester, who is unknown for an existing pod.
func (s *Set) PersonalPods(ctx context.Context, subject *Subject) ([]string, error) {
	found, err := s.personal().MatchPod(ctx, subject)
	return found.names(anyPolicy), err
}

// PersonalClaims is PersonalPods for a claim.
func (s *Set) PersonalClaims(ctx context.Context, subject *Subject) ([]string, error) {
	found, err := s.personal().MatchClaim(ctx, subject)
	return found.names(anyPolicy), err
}

func anyPolicy(*compiled) bool { return true }

// personal returns the set of the policies whose matchConditions read the requester, without these
// conditions. They give nothing.
func (s *Set) personal() *Set {
	if s == nil {
		return nil
	}
	rest := &Set{pods: s.pods, claims: s.claims}
	for _, c := range s.Policies {
		unconditional := &compiled{name: c.name} // matches nothing
		if c.match.conditions.Uses().Requester {
			unconditional.match = c.match
			unconditional.match.conditions = cel.Conditions{}
		}
		rest.Policies = append(rest.Policies, unconditional)
	}
	return rest
}

// index finds the policies that may be for an object: it may return one too many, never one
// too few. Policies are positions in Set.Policies. Each has one entry, under the part of its
// match that is found first: the namespace, then labels, then resources and classes.
type index struct {
	by map[criterion][]int
	// has says by which parts some policies are found.
	has [parts]bool
	// loose are candidates for every object.
	loose []int
}

// criterion is a part of a match. The key is that of a label, the value its value or a name.
type criterion struct {
	of         part
	key, value string
}

// part is the kind of a criterion.
type part uint8

const (
	ofNamespace part = iota
	ofNamespaceLabel
	ofLabel
	ofResource
	ofClass
	parts
)

// add adds a policy. Positions must not descend.
func (x *index) add(position int, criteria []criterion) {
	if len(criteria) == 0 {
		x.loose = append(x.loose, position)
	}
	if x.by == nil {
		x.by = map[criterion][]int{}
	}
	for _, c := range criteria {
		x.by[c] = append(x.by[c], position)
		x.has[c.of] = true
	}
}

// criteriaOf returns criteria of which every object that a policy is for has one; none where there
// is no such list.
func criteriaOf(m *v1alpha1.PlacementMatch) []criterion {
	namespaces := m.Namespaces
	if slices.ContainsFunc(namespaces, func(pattern string) bool { return strings.HasSuffix(pattern, "*") }) {
		namespaces = nil
	}
	for _, criteria := range [][]criterion{
		valuesOf(ofNamespace, "", namespaces), labelsOf(ofNamespaceLabel, m.NamespaceSelector), labelsOf(ofLabel, m.PodSelector),
		valuesOf(ofResource, "", m.Resources), valuesOf(ofClass, "", m.DeviceClasses),
	} {
		if len(criteria) > 0 {
			return criteria
		}
	}
	return nil
}

func valuesOf(of part, key string, values []string) []criterion {
	criteria := make([]criterion, len(values))
	for i, value := range values {
		criteria[i] = criterion{of, key, value}
	}
	return criteria
}

// labelsOf returns labels of which every object that the selector selects has one; none
// where there is no such list.
func labelsOf(of part, selector *metav1.LabelSelector) []criterion {
	if selector == nil {
		return nil
	}
	for key, value := range selector.MatchLabels { // any of them
		return []criterion{{of, key, value}}
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Operator == metav1.LabelSelectorOpIn {
			return valuesOf(of, requirement.Key, requirement.Values)
		}
	}
	return nil
}

// empty reports whether the index has no policy.
func (x *index) empty() bool { return len(x.by)+len(x.loose) == 0 }
