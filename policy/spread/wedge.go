package spread

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Wedge is a constraint that a pod may wait for without end: it counts domains in which
// taints keep the pod from every node that counts. No such pod comes there, and all other
// domains can be no more than maxSkew pods ahead of them (TS-06).
type Wedge struct {
	Constraint Constraint
	// Domains are those that the pod cannot use, sorted. With nodeTaintsPolicy Honor they
	// would not count.
	Domains []string
	// Usable is how many domains would still count.
	Usable int
	// Most is how many pods that are counted fit in those while none is in Domains.
	Most int
	// Taints are those that keep the pod away, of each node the first, and each once,
	// sorted by key.
	Taints []corev1.Taint
}

// Wedges returns the constraints with DoNotSchedule that the pod may wait for without end
// on these nodes, and that nodeTaintsPolicy Honor would help with. Where pods are now does
// not matter: those that come later fill the other domains.
//
// There is none where the pod can go to no node at all, because that is not due to
// spread, nor where the constraint does not count the pod itself, nor where Honor would leave
// fewer domains than minDomains, because then the skew is measured from 0 anyhow (TS-09).
//
// It takes time in proportion to the nodes, and little of it unless a taint keeps the pod
// from some.
func (s *Spreading) Wedges(nodes []Node) []Wedge {
	hard := s.hard()
	if !slices.ContainsFunc(hard, s.mayWedge) || !slices.ContainsFunc(nodes, func(n Node) bool { return s.untolerated(n.Taints) != nil }) {
		return nil
	}
	counted, usable := make([]countedNode, 0, len(nodes)), false
	for i := range nodes {
		if n := &nodes[i]; n.missingKey(hard) == nil {
			c := countedNode{Node: n, taint: s.untolerated(n.Taints), affine: s.Affine(n)}
			counted = append(counted, c)
			usable = usable || c.taint == nil && c.affine
		}
	}
	if !usable {
		return nil
	}
	var wedges []Wedge
	for i := range hard {
		if w, ok := wedgeOf(counted, &hard[i]); ok && s.mayWedge(hard[i]) {
			wedges = append(wedges, w)
		}
	}
	return wedges
}

// countedNode is a node with the keys of all constraints with DoNotSchedule: no others
// count (TS-05).
type countedNode struct {
	*Node

	// taint keeps the pod from the node, nil for none.
	taint *corev1.Taint
	// affine says that the pod requires the node.
	affine bool
}

// mayWedge reports whether a constraint counts nodes whatever their taints, and the pod
// itself: pods that are not counted do not fill the other domains (TS-07).
func (s *Spreading) mayWedge(c Constraint) bool {
	return c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore && c.Selects(s.labels)
}

// Effort returns the number of comparisons that Wedges may need for a node, by the size of the pod's
// spec. A caller can pass over a pod that needs too many.
func (s *Spreading) Effort() int {
	requirements, _ := s.required.selector.Requirements()
	n := len(s.constraints) + len(s.tolerations) + len(requirements)
	for _, t := range s.required.terms {
		n += len(t.fields) + len(t.labels)
		for i := range t.labels {
			n += len(t.labels[i].ValuesUnsorted())
		}
	}
	return n
}

// wedgeOf returns the domains that taints keep the pod from, false for none.
func wedgeOf(nodes []countedNode, c *Constraint) (Wedge, bool) {
	usable, domains, taints := sets.New[string](), sets.New[string](), sets.New[corev1.Taint]()
	for _, tainted := range []bool{false, true} { // all usable domains are known before the others are looked for
		for i := range nodes {
			n := &nodes[i]
			if (n.taint != nil) != tainted || !n.affine && c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
				continue
			}
			value, _ := n.labels().Lookup(c.TopologyKey)
			if !tainted {
				usable.Insert(value)
			} else if !usable.Has(value) {
				domains.Insert(value)
				taints.Insert(corev1.Taint{Key: n.taint.Key, Value: n.taint.Value, Effect: n.taint.Effect})
			}
		}
	}
	if len(usable) < c.MinDomains || len(domains) == 0 {
		return Wedge{}, false
	}
	return Wedge{
		Constraint: *c,
		Domains:    sets.List(domains),
		Usable:     len(usable),
		Most:       c.MaxSkew * len(usable),
		Taints: slices.SortedFunc(maps.Keys(taints), func(a, b corev1.Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
		}),
	}, true
}
