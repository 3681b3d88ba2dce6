package spread

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
// spread, nor where the constraint does not count the pod itself, nor where Honor would leave fewer domains than minDomains, because then the skew
// is measured from 0 anyhow (TS-09).
//
// It takes time in proportion to the nodes, and little of it unless a taint keeps the pod
// from some.
func (s *Spreading) Wedges(nodes []Node) []Wedge {
	hard := s.acting(corev1.DoNotSchedule)
	if !slices.ContainsFunc(hard, s.mayWedge) {
		return nil
	}
	barred := s.barredNodes(nodes)
	if len(barred) == 0 {
		return nil
	}
	divided := s.divide(nodes, barred, hard)
	if !divided.usable {
		return nil
	}
	var wedges []Wedge
	for i := range hard {
		if !s.mayWedge(hard[i]) {
			continue
		}
		if w, ok := s.wedge(divided, &hard[i]); ok {
			wedges = append(wedges, w)
		}
	}
	return wedges
}

// mayWedge reports whether a constraint counts nodes whatever their taints, and the pod
// itself: pods that are not counted do not fill the other domains (TS-07).
func (s *Spreading) mayWedge(c Constraint) bool {
	return c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore && c.Selects(s.labels)
}

// Effort returns how many comparisons Wedges may need for a node, by what the pod says. It
// lets whoever asks keep away from a pod that says too much.
func (s *Spreading) Effort() int {
	return len(s.constraints) + len(s.tolerations) + s.required.effort()
}

// barredNode is a node that a taint keeps the pod from.
type barredNode struct {
	*Node

	at     int
	taint  *corev1.Taint
	affine bool
}

func (s *Spreading) barredNodes(nodes []Node) []barredNode {
	var barred []barredNode
	for n := range nodes {
		if taint := s.barred(nodes[n].Taints); taint != nil {
			barred = append(barred, barredNode{Node: &nodes[n], at: n, taint: taint})
		}
	}
	return barred
}

// divided are the nodes with the keys of all constraints with DoNotSchedule: no others
// count (TS-05).
type divided struct {
	barred []barredNode
	// free are the nodes that no taint keeps the pod from, and affine says of each
	// whether it is one that the pod requires.
	free   []*Node
	affine []bool
	// usable says that there is a free and affine node.
	usable bool
}

func (s *Spreading) divide(nodes []Node, barred []barredNode, hard []Constraint) *divided {
	d := &divided{free: make([]*Node, 0, len(nodes)-len(barred)), affine: make([]bool, 0, len(nodes)-len(barred))}
	next := 0
	for n := range nodes {
		node := &nodes[n]
		isBarred := next < len(barred) && barred[next].at == n
		if isBarred {
			next++
		}
		if !node.hasKeys(hard) {
			continue
		}
		affine := s.required.matches(node)
		if isBarred {
			b := barred[next-1]
			b.affine = affine
			d.barred = append(d.barred, b)
			continue
		}
		d.free, d.affine = append(d.free, node), append(d.affine, affine)
		d.usable = d.usable || affine
	}
	return d
}

func (n *Node) hasKeys(constraints []Constraint) bool {
	for i := range constraints {
		if _, ok := n.value(constraints[i].TopologyKey); !ok {
			return false
		}
	}
	return true
}

func (s *Spreading) wedge(d *divided, c *Constraint) (Wedge, bool) {
	counts := func(affine bool) bool { return affine || c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore }
	remain := make(map[string]struct{})
	for i, node := range d.free {
		if counts(d.affine[i]) {
			value, _ := node.value(c.TopologyKey)
			remain[value] = struct{}{}
		}
	}
	if len(remain) < c.MinDomains {
		return Wedge{}, false
	}
	domains, taints := map[string]struct{}{}, map[corev1.Taint]struct{}{}
	for i := range d.barred {
		b := &d.barred[i]
		value, _ := b.value(c.TopologyKey)
		if _, usable := remain[value]; usable || !counts(b.affine) {
			continue
		}
		domains[value] = struct{}{}
		taints[corev1.Taint{Key: b.taint.Key, Value: b.taint.Value, Effect: b.taint.Effect}] = struct{}{}
	}
	if len(domains) == 0 {
		return Wedge{}, false
	}
	return Wedge{
		Constraint: *c,
		Domains:    slices.Sorted(maps.Keys(domains)),
		Usable:     len(remain),
		Most:       c.MaxSkew * len(remain),
		Taints: slices.SortedFunc(maps.Keys(taints), func(a, b corev1.Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
		}),
	}, true
}
