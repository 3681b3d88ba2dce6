package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// steering is how the needs of policies and what a pod says itself go together.
type steering struct {
	needs []need
	spec  *corev1.PodSpec
	// terms are the required terms of the pod.
	terms []corev1.NodeSelectorTerm
}

func newSteering(needs []need, spec *corev1.PodSpec) *steering {
	return &steering{needs: needs, spec: spec, terms: requiredTerms(spec.Affinity)}
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	if required := required(affinity); required != nil {
		return required.NodeSelectorTerms
	}
	return nil
}

func required(affinity *corev1.Affinity) *corev1.NodeSelector {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// empty reports whether a term selects nothing, and would select something if a
// requirement were added to it.
func empty(term *corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
}

// selected returns what the nodeSelector requires of a label.
func (s *steering) selected(key string) []corev1.NodeSelectorRequirement {
	if value, ok := s.spec.NodeSelector[key]; ok {
		return []corev1.NodeSelectorRequirement{inValues(key, value)}
	}
	return nil
}

// expressed returns what a term requires of a label.
func expressed(key string, term *corev1.NodeSelectorTerm) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range term.MatchExpressions {
		if term.MatchExpressions[i].Key == key {
			found = append(found, term.MatchExpressions[i])
		}
	}
	return found
}

// clash is a label for which the pod and the policies cannot both have their way.
// Term is the index of the required term, -1 for the nodeSelector.
type clash struct {
	key  string
	term int
	own  corev1.NodeSelectorRequirement
}

// clashes returns where the pod itself contradicts the policies, sorted: in its
// nodeSelector, or in every required term that could select a node. Terms are
// alternatives, so one that agrees is enough. Where policies contradict each other
// that is not the pod's doing.
func (s *steering) clashes() []clash {
	var found []clash
	for _, key := range keysOf(s.needs) {
		wanted := of(key, s.needs)
		own := s.selected(key)
		if len(own) > 0 && satisfiable(wanted) && !satisfiable(slices.Concat(wanted, own)) {
			found = append(found, clash{key: key, term: -1, own: own[0]})
		}
	}
	if len(found) > 0 {
		return found
	}
	for i := range s.terms {
		if !s.alive(&s.terms[i]) {
			continue
		}
		c, ok := s.clashOf(i)
		if !ok {
			return nil
		}
		found = append(found, c)
	}
	return found
}

// alive reports whether a term could select a node by what the pod says alone.
func (s *steering) alive(term *corev1.NodeSelectorTerm) bool {
	if empty(term) {
		return false
	}
	return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return !satisfiable(slices.Concat(expressed(r.Key, term), s.selected(r.Key)))
	})
}

// clashOf returns the first label for which a term that is alive contradicts the
// policies.
func (s *steering) clashOf(i int) (clash, bool) {
	term := &s.terms[i]
	for _, key := range keysOf(s.needs) {
		// What the nodeSelector says agrees with the policies, and with a term that is alive.
		own, wanted := expressed(key, term), of(key, s.needs)
		if len(own) > 0 && satisfiable(wanted) && !satisfiable(slices.Concat(wanted, own)) {
			return clash{key: key, term: i, own: decisive(wanted, own)}, true
		}
	}
	return clash{}, false
}

// decisive returns the requirement of own that alone rules out what is wanted, or
// the first.
func decisive(wanted, own []corev1.NodeSelectorRequirement) corev1.NodeSelectorRequirement {
	for i := range own {
		if !satisfiable(append(slices.Clone(wanted), own[i])) {
			return own[i]
		}
	}
	return own[0]
}

// missing returns the needs that the pod does not meet by what it says itself.
func (s *steering) missing() []need {
	return slices.DeleteFunc(slices.Clone(s.needs), s.met)
}

// met reports whether what the pod says is as narrow as n, or narrower, in its
// nodeSelector or in all of its terms.
func (s *steering) met(n need) bool {
	if implied(&n.NodeSelectorRequirement, s.selected(n.Key)) {
		return true
	}
	return len(s.terms) > 0 && !slices.ContainsFunc(s.terms, func(term corev1.NodeSelectorTerm) bool {
		return !empty(&term) && !implied(&n.NodeSelectorRequirement, expressed(n.Key, &term))
	})
}

// steer returns what is added to a pod to meet the needs: to its nodeSelector where
// it is one value that a policy gives as such, which leaves the pod the freedom that
// a gated pod has to be given any node affinity later; else to each required term.
func (s *steering) steer(to *PodAdditions) {
	if len(s.clashes()) > 0 {
		return
	}
	var rest []need
	for _, n := range s.missing() {
		if _, own := s.spec.NodeSelector[n.Key]; n.selector && !own {
			to.NodeSelector = append(to.NodeSelector, Labelled{Key: n.Key, Value: n.Values[0], policies: n.policies})
			continue
		}
		rest = append(rest, n)
	}
	rest = slices.DeleteFunc(rest, func(n need) bool { return implied(&n.NodeSelectorRequirement, added(n.Key, to.NodeSelector)) })
	if len(rest) == 0 {
		return
	}
	if required(s.spec.Affinity) == nil {
		to.Terms = append(to.Terms, Term{Index: -1, needs: rest})
		return
	}
	for i := range s.terms {
		term := &s.terms[i]
		lacking := slices.DeleteFunc(slices.Clone(rest), func(n need) bool {
			return implied(&n.NodeSelectorRequirement, expressed(n.Key, term))
		})
		if !empty(term) && len(lacking) > 0 {
			to.Terms = append(to.Terms, Term{Index: i, needs: lacking})
		}
	}
}

// added returns what a nodeSelector that is added requires of a label.
func added(key string, given []Labelled) []corev1.NodeSelectorRequirement {
	for _, l := range given {
		if l.Key == key {
			return []corev1.NodeSelectorRequirement{inValues(key, l.Value)}
		}
	}
	return nil
}
