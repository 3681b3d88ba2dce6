package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/spread"
)

// compileNodes compiles the valid requirements of a policy on nodes, at most one for each label that
// names values. Several lists of values of one label hold together, as they do in a pod.
func (c *compiled) compileNodes(in *v1alpha1.PodPlacement) {
	named := map[string]corev1.NodeSelectorRequirement{}
	for key, value := range in.NodeSelector {
		if len(validateLabel(key, value, nil)) == 0 {
			named[key] = inValues(key, value)
		}
	}
	for i := range in.NodeAffinity {
		r := in.NodeAffinity[i].DeepCopy()
		before, again := named[r.Key]
		switch {
		case len(validateRequirement(r, nil)) > 0:
		case r.Operator != corev1.NodeSelectorOpIn:
			c.nodes = append(c.nodes, *r)
		case again:
			before.Values = slices.DeleteFunc(before.Values, func(value string) bool { return !slices.Contains(r.Values, value) })
			named[r.Key] = before
		default:
			slices.Sort(r.Values)
			r.Values = slices.Compact(r.Values)
			named[r.Key] = *r
		}
	}
	for key, r := range named {
		if len(r.Values) == 0 {
			continue // Lists that exclude each other are a fault, which validatePod reports.
		}
		c.nodes = append(c.nodes, r)
		if value, ok := in.NodeSelector[key]; ok && value == r.Values[0] {
			c.labels = append(c.labels, key)
		}
	}
}

// needs returns the requirements of all policies on nodes, sorted, each once. The values of a label
// are merged, so that the pod may go where one of the policies steers it.
func (m Matching) needs() requirements {
	var all requirements
	named := map[string]int{} // the position in all of the requirement that names values of a label
	for _, c := range m.policies {
		for _, n := range c.nodes {
			at, again := named[n.Key]
			switch {
			case n.Operator != corev1.NodeSelectorOpIn:
				all = append(all, n)
			case again:
				all[at].Values = withValues(all[at].Values, n.Values)
			default:
				named[n.Key] = len(all)
				n.Values = slices.Clone(n.Values)
				all = append(all, n)
			}
		}
	}
	compare := func(a, b corev1.NodeSelectorRequirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b corev1.NodeSelectorRequirement) bool { return compare(a, b) == 0 })
}

// withValues inserts the values that a sorted list does not have yet.
func withValues(sorted, values []string) []string {
	for _, value := range values {
		if at, found := slices.BinarySearch(sorted, value); !found {
			sorted = slices.Insert(sorted, at, value)
		}
	}
	return sorted
}

// names returns the names, sorted, of the policies for which something holds.
func (m Matching) names(holds func(*compiled) bool) []string {
	var names []string
	for _, c := range m.policies {
		if holds(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// authorsOn returns the policies that have a requirement on a label.
func (m Matching) authorsOn(key string) []string {
	return m.names(func(c *compiled) bool { return len(about(key, c.nodes)) > 0 })
}

// authorsOf returns the policies that a need comes from: those that require the same, or for a
// list of values, those that name values of the label.
func (m Matching) authorsOf(n *corev1.NodeSelectorRequirement) []string {
	return m.names(func(c *compiled) bool {
		return slices.ContainsFunc(c.nodes, func(own corev1.NodeSelectorRequirement) bool {
			return own.Key == n.Key && own.Operator == n.Operator && (n.Operator == corev1.NodeSelectorOpIn || slices.Equal(own.Values, n.Values))
		})
	})
}

// selects reports whether a need is one value that the nodeSelector of a policy names.
func (m Matching) selects(n *corev1.NodeSelectorRequirement) bool {
	return n.Operator == corev1.NodeSelectorOpIn && len(n.Values) == 1 &&
		slices.ContainsFunc(m.policies, func(c *compiled) bool { return slices.Contains(c.labels, n.Key) })
}

// about returns the requirements on one label.
func about(key string, all requirements) requirements {
	var found requirements
	for _, r := range all {
		if r.Key == key {
			found = append(found, r)
		}
	}
	return found
}

// steering compares the needs of policies with the requirements of a pod.
type steering struct {
	Matching

	needs requirements
	// keys are the labels that the needs are about, sorted.
	keys []string
	spec *corev1.PodSpec
	// terms are the required terms of the pod.
	terms []corev1.NodeSelectorTerm
}

// steering returns no needs for a pod of the DaemonSet controller.
func (m Matching) steering(pod Pod) *steering {
	s := &steering{Matching: m, spec: pod.Spec}
	if !pod.FromDaemonSetController {
		s.needs = m.needs()
	}
	for i := range s.needs {
		s.keys = append(s.keys, s.needs[i].Key)
	}
	s.keys = slices.Compact(s.keys)
	s.terms = ptr.Deref(spread.RequiredNodes(pod.Spec.Affinity), corev1.NodeSelector{}).NodeSelectorTerms
	return s
}

// empty reports whether a term selects nothing, and would select something if a
// requirement were added to it.
func empty(term *corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions)+len(term.MatchFields) == 0
}

// ofSelector is the place of the requirements of a nodeSelector. All other places are indices of
// required terms.
const ofSelector = -1

// own returns what the pod requires of a label at a place.
func (s *steering) own(place int, key string) requirements {
	if place != ofSelector {
		return about(key, s.terms[place].MatchExpressions)
	}
	if value, ok := s.spec.NodeSelector[key]; ok {
		return requirements{inValues(key, value)}
	}
	return nil
}

// conflict is a label for which no value satisfies both the pod, at a place, and the policies.
type conflict struct {
	key   string
	place int
	own   corev1.NodeSelectorRequirement
}

// conflicts returns the conflicts of the pod with the policies, sorted: in its nodeSelector,
// or in every required term that could select a node. Terms are alternatives, so one without
// a conflict is enough.
func (s *steering) conflicts() []conflict {
	found := s.conflictsAt(ofSelector)
	if len(found) > 0 {
		return found
	}
	for i := range s.terms {
		if !s.alive(&s.terms[i]) {
			continue
		}
		// The nodeSelector needs no check here: it contradicts neither the policies nor a
		// term that is alive.
		own := s.conflictsAt(i)
		if len(own) == 0 {
			return nil
		}
		found = append(found, own[0])
	}
	return found
}

// alive reports whether a term could select a node by the requirements of the pod alone.
func (s *steering) alive(term *corev1.NodeSelectorTerm) bool {
	return !empty(term) && !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return !satisfiable(slices.Concat(about(r.Key, term.MatchExpressions), s.own(ofSelector, r.Key)))
	})
}

// conflictsAt returns the conflicts at a place, each with the requirement of the pod that alone
// rules out what the policies want, or the first. Policies that contradict each other are no
// conflict of the pod.
func (s *steering) conflictsAt(place int) []conflict {
	var found []conflict
	for _, key := range s.keys {
		own := s.own(place, key)
		if len(own) == 0 {
			continue
		}
		wanted := about(key, s.needs)
		if satisfiable(wanted) && !satisfiable(slices.Concat(wanted, own)) {
			decisive := slices.IndexFunc(own, func(r corev1.NodeSelectorRequirement) bool { return !satisfiable(append(slices.Clone(wanted), r)) })
			found = append(found, conflict{key: key, place: place, own: own[max(decisive, 0)]})
		}
	}
	return found
}

// met reports whether the pod requires n, or more, in its nodeSelector or in all of its
// terms.
func (s *steering) met(n *corev1.NodeSelectorRequirement) bool {
	if implied(n, s.own(ofSelector, n.Key)) {
		return true
	}
	return len(s.terms) > 0 && !slices.ContainsFunc(s.terms, func(term corev1.NodeSelectorTerm) bool {
		return !empty(&term) && !implied(n, about(n.Key, term.MatchExpressions))
	})
}

// steer adds what meets the needs of a pod: to its nodeSelector where that is one value of
// the nodeSelector of a policy, so that a gated pod can still be given any node affinity;
// else to each required term.
func (s *steering) steer(to *PodAdditions) {
	if len(s.conflicts()) > 0 {
		return
	}
	var rest requirements
	for i := range s.needs {
		n := &s.needs[i]
		_, own := s.spec.NodeSelector[n.Key]
		switch {
		case s.met(n):
		case !own && s.selects(n):
			to.NodeSelector = append(to.NodeSelector, Labelled{Key: n.Key, Value: n.Values[0]})
		default:
			rest = append(rest, *n)
		}
	}
	rest = slices.DeleteFunc(rest, func(n corev1.NodeSelectorRequirement) bool {
		return slices.ContainsFunc(to.NodeSelector, func(added Labelled) bool { return added.Key == n.Key && holds(&n, added.Value) })
	})
	if len(rest) > 0 && spread.RequiredNodes(s.spec.Affinity) == nil {
		to.Terms = append(to.Terms, Term{Index: -1, needs: rest})
	}
	for i := range s.terms {
		added := Term{Index: i}
		for _, n := range rest {
			if !empty(&s.terms[i]) && !implied(&n, s.own(i, n.Key)) {
				added.needs = append(added.needs, n)
			}
		}
		if len(added.needs) > 0 {
			to.Terms = append(to.Terms, added)
		}
	}
}
