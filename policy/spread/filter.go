package spread

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/selector"
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

// NodeCount says whether a node counts for a constraint, and its pods.
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

// Count holds the numbers of a constraint.
type Count struct {
	Constraint Constraint
	// Domains are sorted by value.
	Domains []Domain
	// Nodes has an entry for each node of the cluster, in its order.
	Nodes []NodeCount
	// Self is 1 if the constraint counts the pod itself, else 0.
	Self int

	domains map[string]Domain // by value
	minimum int
}

// Minimum returns the number from which the skew is measured, the global minimum: how many pods
// the emptiest domain has, and 0 where there are fewer domains than minDomains (TS-09).
func (c *Count) Minimum() int { return c.minimum }

// Domain returns the domain with that value. A domain in which no node counts has no pods
// (TS-08).
func (c *Count) Domain(value string) Domain {
	return cmp.Or(c.domains[value], Domain{Value: value})
}

// count returns the counts of the constraints with DoNotSchedule.
func (s *Spreading) count(cluster *Cluster) []Count {
	constraints := s.hard()
	if len(constraints) == 0 {
		return nil
	}
	counts := make([]Count, len(constraints))
	for i := range counts {
		counts[i] = Count{Constraint: constraints[i], Nodes: make([]NodeCount, len(cluster.nodes))}
		if constraints[i].Selector.Matches(s.labels) {
			counts[i].Self = 1
		}
	}
	for n := range cluster.nodes {
		node := &cluster.nodes[n]
		affine, taint, missing := s.Affine(node), s.untolerated(node.Taints), node.missingKey(constraints)
		for i := range counts {
			counted := &counts[i].Nodes[n]
			counted.Taint = taint
			switch c := &constraints[i]; {
			case missing != nil:
				counted.Why, counted.Key = MissingKey, *missing
			case !affine && c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor:
				counted.Why = AffinityMismatch
			case taint != nil && c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor:
				counted.Why = UntoleratedTaint
			}
		}
	}
	s.countPods(cluster, counts)
	for i := range counts {
		counts[i].addUp(cluster.nodes)
	}
	return counts
}

// countPods counts the pods on each node that each constraint selects (TS-10).
func (s *Spreading) countPods(cluster *Cluster, counts []Count) {
	for p := range cluster.pods {
		pod := &cluster.pods[p]
		if pod.Namespace != s.namespace || pod.Terminating {
			continue
		}
		at, ok := cluster.positions[pod.Node]
		if !ok {
			continue
		}
		for i := range counts {
			if counts[i].Constraint.Selects(selector.Labels(pod.Labels)) {
				counts[i].Nodes[at].Pods++
			}
		}
	}
}

// addUp fills in the domains and the minimum.
func (c *Count) addUp(nodes []Node) {
	c.domains = map[string]Domain{}
	for n := range nodes {
		if c.Nodes[n].Why != Counted {
			continue
		}
		value, _ := nodes[n].labels().Lookup(c.Constraint.TopologyKey)
		d := c.domains[value]
		c.domains[value] = Domain{Value: value, Pods: d.Pods + c.Nodes[n].Pods, Nodes: d.Nodes + 1}
	}
	c.Domains = slices.SortedFunc(maps.Values(c.domains), func(a, b Domain) int { return cmp.Compare(a.Value, b.Value) })
	if len(c.Domains) >= c.Constraint.MinDomains {
		c.minimum = slices.MinFunc(c.Domains, func(a, b Domain) int { return a.Pods - b.Pods }).Pods
	}
}

// Code is what a constraint, or the scheduler, says of a node.
type Code string

// The codes, as the scheduler names them.
const (
	// Success means that the pod may go to the node.
	Success Code = "Success"
	// Unschedulable means that it may once others are gone.
	Unschedulable Code = "Unschedulable"
	// UnschedulableAndUnresolvable means that no pod that goes would help: the node lacks
	// a topology key.
	UnschedulableAndUnresolvable Code = "UnschedulableAndUnresolvable"
)

// Verdict holds the code of each count for a node.
type Verdict []Code

// Code returns the code of the node: that of the first constraint that keeps the pod away, as the
// scheduler looks no further.
func (v Verdict) Code() Code {
	for _, code := range v {
		if code != Success {
			return code
		}
	}
	return Success
}

// Filtered says where constraints with DoNotSchedule let a pod go.
type Filtered struct {
	// Counts has an entry for each constraint with DoNotSchedule, in the pod's order.
	Counts []Count
	// Verdicts has an entry for each node of the cluster, in its order.
	Verdicts []Verdict
}

// Filter says where the constraints with DoNotSchedule let the pod go. Only spread is
// looked at: whether nodes have taints that keep the pod away, or match its requirements,
// is not decided here (TS-07, TS-08).
func (s *Spreading) Filter(cluster *Cluster) *Filtered {
	f := &Filtered{Counts: s.count(cluster), Verdicts: make([]Verdict, len(cluster.nodes))}
	for n := range cluster.nodes {
		verdict := make(Verdict, len(f.Counts))
		for i := range f.Counts {
			c := &f.Counts[i]
			value, ok := cluster.nodes[n].labels().Lookup(c.Constraint.TopologyKey)
			switch {
			case !ok:
				verdict[i] = UnschedulableAndUnresolvable
			case c.Domain(value).Pods+c.Self-c.minimum > c.Constraint.MaxSkew:
				verdict[i] = Unschedulable
			default:
				verdict[i] = Success
			}
		}
		f.Verdicts[n] = verdict
	}
	return f
}

// SideBySide is where a pod may go if taints are honoured and if they are ignored.
type SideBySide struct{ Honor, Ignore *Filtered }

// SideBySide filters with the nodeTaintsPolicy of every constraint set to Honor, and to
// Ignore.
func (s *Spreading) SideBySide(cluster *Cluster) SideBySide {
	return SideBySide{
		Honor:  s.withTaintsPolicy(corev1.NodeInclusionPolicyHonor).Filter(cluster),
		Ignore: s.withTaintsPolicy(corev1.NodeInclusionPolicyIgnore).Filter(cluster),
	}
}
