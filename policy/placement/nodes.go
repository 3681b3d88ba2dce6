package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// nodeRequirements are the requirements of one policy on the nodes of pods.
type nodeRequirements struct {
	// labels are those of which it names the values, sorted by key, one for each.
	labels []labelValues
	// others are all other requirements.
	others []corev1.NodeSelectorRequirement
}

// labelValues are the values that a label of nodes may have, sorted.
type labelValues struct {
	key    string
	values []string
	// selector says that it is written as a nodeSelector where it can be.
	selector bool
}

// compileNodes returns the valid requirements of a policy. Several lists of values of one
// label hold together, as they do in a pod.
func compileNodes(in *v1alpha1.PodPlacement) nodeRequirements {
	var c nodeRequirements
	named := map[string]labelValues{}
	for key, value := range in.NodeSelector {
		if len(validateLabel(key, value, nil)) == 0 {
			named[key] = labelValues{key: key, values: []string{value}, selector: true}
		}
	}
	for i := range in.NodeAffinity {
		r := in.NodeAffinity[i].DeepCopy()
		if len(validateRequirement(r, nil)) > 0 {
			continue
		}
		if r.Operator != corev1.NodeSelectorOpIn {
			c.others = append(c.others, *r)
			continue
		}
		values := sortedSet(r.Values)
		if before, ok := named[r.Key]; ok {
			before.values = slices.DeleteFunc(before.values, func(value string) bool { return !slices.Contains(values, value) })
			named[r.Key] = before
			continue
		}
		named[r.Key] = labelValues{key: r.Key, values: values}
	}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		// Lists that exclude each other are a fault, which validatePod reports.
		if len(named[key].values) > 0 {
			c.labels = append(c.labels, named[key])
		}
	}
	return c
}

func sortedSet(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// need is a requirement on the nodes of a pod, and the policies that it comes from.
type need struct {
	corev1.NodeSelectorRequirement

	// selector says that it is one value, to be written as a nodeSelector where it
	// can be.
	selector bool
	policies []string
}

// needs returns the requirements of all policies, sorted. The values of a label are merged,
// so that the pod may go where one of the policies steers it.
func (m Matching) needs() []need {
	merged := map[string]need{}
	var all []need
	for _, c := range m.policies {
		for _, s := range c.pod.nodes.labels {
			n := merged[s.key]
			n.Values = append(n.Values, s.values...)
			n.selector = n.selector || s.selector
			n.policies = append(n.policies, c.name)
			merged[s.key] = n
		}
		for i := range c.pod.nodes.others {
			all = append(all, need{NodeSelectorRequirement: c.pod.nodes.others[i], policies: []string{c.name}})
		}
	}
	for key, n := range merged {
		n.NodeSelectorRequirement = inValues(key, sortedSet(n.Values)...)
		n.selector = n.selector && len(n.Values) == 1
		all = append(all, n)
	}
	// Equal needs become one. They are sorted, and equal ones by policy.
	compare := func(a, b need) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	}
	slices.SortStableFunc(all, compare)
	var compact []need
	for _, n := range all {
		if last := len(compact) - 1; last >= 0 && compare(compact[last], n) == 0 {
			compact[last].policies = slices.Compact(append(slices.Clone(compact[last].policies), n.policies...))
			continue
		}
		compact = append(compact, n)
	}
	return compact
}

// of returns what is required of one label.
func of(key string, needs []need) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range needs {
		if needs[i].Key == key {
			found = append(found, needs[i].NodeSelectorRequirement)
		}
	}
	return found
}

// keysOf returns the labels that something is required of, sorted.
func keysOf(needs []need) []string {
	keys := make([]string, 0, len(needs))
	for i := range needs {
		keys = append(keys, needs[i].Key)
	}
	return slices.Compact(keys)
}

// steering compares the needs of policies with the requirements of a pod.
type steering struct {
	needs []need
	spec  *corev1.PodSpec
	// terms are the required terms of the pod.
	terms []corev1.NodeSelectorTerm
}

func newSteering(needs []need, spec *corev1.PodSpec) *steering {
	s := &steering{needs: needs, spec: spec}
	if required := required(spec.Affinity); required != nil {
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

// selected returns the requirement of the nodeSelector on a label.
func (s *steering) selected(key string) []corev1.NodeSelectorRequirement {
	if value, ok := s.spec.NodeSelector[key]; ok {
		return []corev1.NodeSelectorRequirement{inValues(key, value)}
	}
	return nil
}

// expressed returns the requirements of a term on a label.
func expressed(key string, term *corev1.NodeSelectorTerm) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range term.MatchExpressions {
		if term.MatchExpressions[i].Key == key {
			found = append(found, term.MatchExpressions[i])
		}
	}
	return found
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
	for _, key := range keysOf(s.needs) {
		wanted := of(key, s.needs)
		own := s.selected(key)
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
		return !satisfiable(slices.Concat(expressed(r.Key, term), s.selected(r.Key)))
	})
}

// conflictOf returns the first conflict of a term that is alive.
func (s *steering) conflictOf(i int) (conflict, bool) {
	term := &s.terms[i]
	for _, key := range keysOf(s.needs) {
		// The nodeSelector needs no check here: it contradicts neither the policies nor a
		// term that is alive.
		own, wanted := expressed(key, term), of(key, s.needs)
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
	if implied(&n.NodeSelectorRequirement, s.selected(n.Key)) {
		return true
	}
	return len(s.terms) > 0 && !slices.ContainsFunc(s.terms, func(term corev1.NodeSelectorTerm) bool {
		return !empty(&term) && !implied(&n.NodeSelectorRequirement, expressed(n.Key, &term))
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
	for _, n := range slices.DeleteFunc(slices.Clone(s.needs), s.met) {
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

// added returns the requirement of added labels of a nodeSelector on a label.
func added(key string, given []Labelled) []corev1.NodeSelectorRequirement {
	for _, l := range given {
		if l.Key == key {
			return []corev1.NodeSelectorRequirement{inValues(key, l.Value)}
		}
	}
	return nil
}
