package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// need is a requirement of policies on the nodes of a pod.
type need struct {
	corev1.NodeSelectorRequirement

	// selector says that it is one value, to be written as a nodeSelector where it
	// can be.
	selector bool
}

// compileNodes returns the valid requirements of a policy, at most one for each label that names
// values. Several lists of values of one label hold together, as they do in a pod.
func compileNodes(in *v1alpha1.PodPlacement) []need {
	var needs []need
	named := map[string]need{}
	for key, value := range in.NodeSelector {
		if len(validateLabel(key, value, nil)) == 0 {
			named[key] = need{NodeSelectorRequirement: inValues(key, value), selector: true}
		}
	}
	for i := range in.NodeAffinity {
		n := need{NodeSelectorRequirement: *in.NodeAffinity[i].DeepCopy()}
		before, again := named[n.Key]
		switch {
		case len(validateRequirement(&n.NodeSelectorRequirement, nil)) > 0:
		case n.Operator != corev1.NodeSelectorOpIn:
			needs = append(needs, n)
		case again:
			before.Values = slices.DeleteFunc(before.Values, func(value string) bool { return !slices.Contains(n.Values, value) })
			named[n.Key] = before
		default:
			n.Values = sortedSet(n.Values)
			named[n.Key] = n
		}
	}
	for _, n := range named {
		// Lists that exclude each other are a fault, which validatePod reports.
		if len(n.Values) > 0 {
			needs = append(needs, n)
		}
	}
	return needs
}

func sortedSet(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// needs returns the requirements of all policies, sorted, each once. The values of a label are
// merged, so that the pod may go where one of the policies steers it.
func (m Matching) needs() []need {
	var all []need
	named := map[string]int{} // the position in all of the requirement that names values of a label
	for _, c := range m.policies {
		for _, n := range c.pod.nodes {
			at, again := named[n.Key]
			switch {
			case n.Operator != corev1.NodeSelectorOpIn:
				all = append(all, n)
			case again:
				all[at].selector = all[at].selector || n.selector
				all[at].Values = withValues(all[at].Values, n.Values)
			default:
				named[n.Key] = len(all)
				n.Values = slices.Clone(n.Values)
				all = append(all, n)
			}
		}
	}
	for i := range all {
		all[i].selector = all[i].selector && len(all[i].Values) == 1
	}
	compare := func(a, b need) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b need) bool { return compare(a, b) == 0 })
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

// authors returns the names, sorted, of the policies that have a requirement like this.
func (m Matching) authors(like func(*need) bool) []string {
	var names []string
	for _, c := range m.policies {
		for i := range c.pod.nodes {
			if like(&c.pod.nodes[i]) {
				names = append(names, c.name)
				break
			}
		}
	}
	return names
}

// authorsOf returns the policies that a need comes from: those that require the same, or for a
// list of values, those that name values of the label.
func (m Matching) authorsOf(n *corev1.NodeSelectorRequirement) []string {
	return m.authors(func(own *need) bool {
		return own.Key == n.Key && own.Operator == n.Operator &&
			(n.Operator == corev1.NodeSelectorOpIn || slices.Equal(own.Values, n.Values))
	})
}

// about returns the requirements on one label.
func about(key string, requirements []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range requirements {
		if requirements[i].Key == key {
			found = append(found, requirements[i])
		}
	}
	return found
}

// steering compares the needs of policies with the requirements of a pod.
type steering struct {
	Matching

	needs []need
	// wanted are the requirements of the needs, keys the labels that they are about, sorted.
	wanted []corev1.NodeSelectorRequirement
	keys   []string
	spec   *corev1.PodSpec
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
		s.wanted, s.keys = append(s.wanted, s.needs[i].NodeSelectorRequirement), append(s.keys, s.needs[i].Key)
	}
	s.keys = slices.Compact(s.keys)
	if required := required(pod.Spec.Affinity); required != nil {
		s.terms = required.NodeSelectorTerms
	}
	return s
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

// selected returns the requirement of a nodeSelector on a label.
func selected(key string, selector map[string]string) []corev1.NodeSelectorRequirement {
	if value, ok := selector[key]; ok {
		return []corev1.NodeSelectorRequirement{inValues(key, value)}
	}
	return nil
}

// conflict is a label for which no value satisfies both the pod and the policies. Term is the
// index of the required term, -1 for the nodeSelector.
type conflict struct {
	key  string
	term int
	own  corev1.NodeSelectorRequirement
}

// conflicts returns the conflicts of the pod with the policies, sorted: in its nodeSelector,
// or in every required term that could select a node. Terms are alternatives, so one without
// a conflict is enough. Policies that contradict each other are no conflict of the pod.
func (s *steering) conflicts() []conflict {
	var found []conflict
	for _, key := range s.keys {
		wanted := about(key, s.wanted)
		own := selected(key, s.spec.NodeSelector)
		if len(own) > 0 && satisfiable(wanted) && !satisfiable(slices.Concat(wanted, own)) {
			found = append(found, conflict{key: key, term: -1, own: own[0]})
		}
	}
	if len(found) > 0 {
		return found
	}
	for i := range s.terms {
		if !s.alive(&s.terms[i]) {
			continue
		}
		c, ok := s.conflictOf(i)
		if !ok {
			return nil
		}
		found = append(found, c)
	}
	return found
}

// alive reports whether a term could select a node by the requirements of the pod alone.
func (s *steering) alive(term *corev1.NodeSelectorTerm) bool {
	if empty(term) {
		return false
	}
	return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return !satisfiable(slices.Concat(about(r.Key, term.MatchExpressions), selected(r.Key, s.spec.NodeSelector)))
	})
}

// conflictOf returns the first conflict of a term that is alive.
func (s *steering) conflictOf(i int) (conflict, bool) {
	term := &s.terms[i]
	for _, key := range s.keys {
		// The nodeSelector needs no check here: it contradicts neither the policies nor a
		// term that is alive.
		own, wanted := about(key, term.MatchExpressions), about(key, s.wanted)
		if len(own) > 0 && satisfiable(wanted) && !satisfiable(slices.Concat(wanted, own)) {
			return conflict{key: key, term: i, own: decisive(wanted, own)}, true
		}
	}
	return conflict{}, false
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

// met reports whether the pod requires n, or more, in its nodeSelector or in all of its
// terms.
func (s *steering) met(n need) bool {
	if implied(&n.NodeSelectorRequirement, selected(n.Key, s.spec.NodeSelector)) {
		return true
	}
	return len(s.terms) > 0 && !slices.ContainsFunc(s.terms, func(term corev1.NodeSelectorTerm) bool {
		return !empty(&term) && !implied(&n.NodeSelectorRequirement, about(n.Key, term.MatchExpressions))
	})
}

// steer adds what meets the needs of a pod: to its nodeSelector where that is one value of
// the nodeSelector of a policy, so that a gated pod can still be given any node affinity;
// else to each required term.
func (s *steering) steer(to *PodAdditions) {
	if len(s.conflicts()) > 0 {
		return
	}
	var rest []need
	added := map[string]string{}
	for _, n := range slices.DeleteFunc(slices.Clone(s.needs), s.met) {
		if _, own := s.spec.NodeSelector[n.Key]; n.selector && !own {
			to.NodeSelector = append(to.NodeSelector, Labelled{Key: n.Key, Value: n.Values[0]})
			added[n.Key] = n.Values[0]
			continue
		}
		rest = append(rest, n)
	}
	rest = slices.DeleteFunc(rest, func(n need) bool { return implied(&n.NodeSelectorRequirement, selected(n.Key, added)) })
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
			return implied(&n.NodeSelectorRequirement, about(n.Key, term.MatchExpressions))
		})
		if !empty(term) && len(lacking) > 0 {
			to.Terms = append(to.Terms, Term{Index: i, needs: lacking})
		}
	}
}
