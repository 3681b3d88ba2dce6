package spread

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Exclusion is why a node does not count.
type Exclusion string

// The exclusions, in the order in which they are looked for.
const (
	// Counted is none: the node counts.
	Counted Exclusion = ""
	// MissingKey means that the node lacks the topology key of a constraint with the same
	// whenUnsatisfiable (TS-05).
	MissingKey Exclusion = "MissingKey"
	// AffinityMismatch means that the pod's nodeSelector or required node affinity does
	// not match, and nodeAffinityPolicy is Honor (TS-02).
	AffinityMismatch Exclusion = "AffinityMismatch"
	// UntoleratedTaint means that a taint with NoSchedule or NoExecute is not tolerated,
	// and nodeTaintsPolicy is Honor (TS-03).
	UntoleratedTaint Exclusion = "UntoleratedTaint"
)

// NodeCount is what a node is to a constraint.
type NodeCount struct {
	// Why is why the node does not count; Counted if it does.
	Why Exclusion
	// Key is the key that is missing, with MissingKey.
	Key string
	// Taint is the first taint that the pod does not tolerate, whether the node counts
	// or not; nil for none.
	Taint *corev1.Taint
	// Pods is how many matching pods there are on the node, whether it counts or not.
	Pods int
}

// Domain is the nodes that count and have a value of the topology key in common.
type Domain struct {
	Value string
	// Pods is how many matching pods there are on the nodes, and Nodes how many these are.
	Pods, Nodes int
}

// Count is what a constraint counts.
type Count struct {
	Constraint Constraint
	// Domains are sorted by value.
	Domains []Domain
	// Nodes has an entry for each node of the cluster, in its order.
	Nodes []NodeCount
	// Least is how many pods the emptiest domain has; 0 where there is no domain.
	Least int
	// TooFew says that there are fewer domains than minDomains, so that the skew is
	// measured from 0 (TS-09).
	TooFew bool
	// Self is 1 if the constraint counts the pod itself, else 0.
	Self int
}

// Minimum returns what the skew is measured from: the global minimum.
func (c *Count) Minimum() int {
	if c.TooFew {
		return 0
	}
	return c.Least
}

// Domain returns the domain with that value. One that no node counts in has no pods
// (TS-08).
func (c *Count) Domain(value string) Domain {
	i, found := slices.BinarySearchFunc(c.Domains, value, func(d Domain, value string) int { return cmp.Compare(d.Value, value) })
	if !found {
		return Domain{Value: value}
	}
	return c.Domains[i]
}

// standing is what a node is to the pod, whatever the constraint.
type standing struct {
	missing string
	lacks   bool
	affine  bool
	taint   *corev1.Taint
}

func (s *Spreading) standing(node *Node, constraints []Constraint) standing {
	stands := standing{affine: s.required.matches(node), taint: s.barred(node.Taints)}
	for i := range constraints {
		if _, ok := node.value(constraints[i].TopologyKey); !ok {
			stands.missing, stands.lacks = constraints[i].TopologyKey, true
			break
		}
	}
	return stands
}

// exclusion returns why such a node does not count. KeysMayLack says that nodes count
// which lack a key.
func (s *standing) exclusion(c *Constraint, keysMayLack bool) Exclusion {
	switch {
	case s.lacks && !keysMayLack:
		return MissingKey
	case !s.affine && c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor:
		return AffinityMismatch
	case s.taint != nil && c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor:
		return UntoleratedTaint
	default:
		return Counted
	}
}

// count returns what constraints count that have the same whenUnsatisfiable.
func (s *Spreading) count(cluster *Cluster, constraints []Constraint, keysMayLack bool) []Count {
	if len(constraints) == 0 {
		return nil
	}
	pods := s.matching(cluster, constraints)
	counts := make([]Count, len(constraints))
	for i := range counts {
		counts[i] = Count{Constraint: constraints[i], Nodes: make([]NodeCount, len(cluster.nodes))}
		if constraints[i].Selector.Matches(s.labels) {
			counts[i].Self = 1
		}
	}
	for n := range cluster.nodes {
		stands := s.standing(&cluster.nodes[n], constraints)
		for i := range counts {
			why := stands.exclusion(&constraints[i], keysMayLack)
			counts[i].Nodes[n] = NodeCount{Why: why, Taint: stands.taint, Pods: pods[i][n]}
			if why == MissingKey {
				counts[i].Nodes[n].Key = stands.missing
			}
		}
	}
	for i := range counts {
		counts[i].addUp(cluster.nodes)
	}
	return counts
}

// matching returns how many pods each constraint selects on each node (TS-10).
func (s *Spreading) matching(cluster *Cluster, constraints []Constraint) [][]int {
	pods := make([][]int, len(constraints))
	for i := range pods {
		pods[i] = make([]int, len(cluster.nodes))
	}
	for p := range cluster.pods {
		pod := &cluster.pods[p]
		if pod.Namespace != s.namespace || pod.Terminating {
			continue
		}
		at, ok := cluster.positions[pod.Node]
		if !ok {
			continue
		}
		for i := range constraints {
			if constraints[i].Selects(orNone(pod.Labels)) {
				pods[i][at]++
			}
		}
	}
	return pods
}

// addUp fills in the domains and their least number of pods.
func (c *Count) addUp(nodes []Node) {
	domains := map[string]Domain{}
	for n := range nodes {
		if c.Nodes[n].Why != Counted {
			continue
		}
		value, _ := nodes[n].value(c.Constraint.TopologyKey)
		d := domains[value]
		domains[value] = Domain{Value: value, Pods: d.Pods + c.Nodes[n].Pods, Nodes: d.Nodes + 1}
	}
	c.Domains = make([]Domain, 0, len(domains))
	for _, d := range domains {
		c.Domains = append(c.Domains, d)
	}
	slices.SortFunc(c.Domains, func(a, b Domain) int { return cmp.Compare(a.Value, b.Value) })
	if len(c.Domains) > 0 {
		c.Least = slices.MinFunc(c.Domains, func(a, b Domain) int { return a.Pods - b.Pods }).Pods
	}
	c.TooFew = len(c.Domains) < c.Constraint.MinDomains
}
