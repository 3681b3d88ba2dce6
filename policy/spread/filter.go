package spread

import corev1 "k8s.io/api/core/v1"

// Code is what the scheduler makes of a node.
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

// Message returns what the scheduler says of such nodes in events and in the condition
// PodScheduled; empty for Success.
func (c Code) Message() string {
	const mismatch = "node(s) didn't match pod topology spread constraints"
	switch c {
	case Unschedulable:
		return mismatch
	case UnschedulableAndUnresolvable:
		return mismatch + " (missing required label)"
	case Success:
	}
	return ""
}

// Skew is how far a domain would be ahead if the pod went there.
type Skew struct {
	// Domain is the value of the topology key, and Missing says that the node has none.
	// Then the other fields are zero.
	Domain  string
	Missing bool
	// Pods is how many matching pods the domain has without the pod.
	Pods int
	// Skew is how many it would be above the global minimum with the pod. It can be
	// negative.
	Skew int
	// Exceeds says that this is more than maxSkew.
	Exceeds bool
}

// Verdict is what the constraints make of a node for the pod.
type Verdict struct {
	Code Code
	// By is the constraint, by its place among the counts, that keeps the pod away: the
	// first one, as the scheduler looks no further. It is -1 with Success.
	By int
	// Skews has an entry for each count.
	Skews []Skew
}

// Filtered says where constraints with DoNotSchedule let a pod go.
type Filtered struct {
	// Counts has an entry for each constraint with DoNotSchedule, in the pod's order.
	Counts []Count
	// Verdicts has an entry for each node of the cluster, in its order.
	Verdicts []Verdict
}

// Filter says where the constraints with DoNotSchedule let the pod go. Only spread is
// looked at: whether nodes have taints that keep the pod away, or match what it requires,
// is for others to say (TS-08).
func (s *Spreading) Filter(cluster *Cluster) *Filtered {
	counts := s.count(cluster, s.acting(corev1.DoNotSchedule), false)
	f := &Filtered{Counts: counts, Verdicts: make([]Verdict, len(cluster.nodes))}
	skews := make([]Skew, len(counts)*len(cluster.nodes))
	for n := range cluster.nodes {
		f.Verdicts[n] = judge(&cluster.nodes[n], counts, skews[:len(counts):len(counts)])
		skews = skews[len(counts):]
	}
	return f
}

// judge fills in the skews and returns the verdict (TS-07).
func judge(node *Node, counts []Count, skews []Skew) Verdict {
	verdict := Verdict{Code: Success, By: -1, Skews: skews}
	for i := range counts {
		skews[i] = counts[i].skew(node)
		if verdict.Code != Success {
			continue
		}
		switch {
		case skews[i].Missing:
			verdict.Code, verdict.By = UnschedulableAndUnresolvable, i
		case skews[i].Exceeds:
			verdict.Code, verdict.By = Unschedulable, i
		}
	}
	return verdict
}

func (c *Count) skew(node *Node) Skew {
	value, ok := node.value(c.Constraint.TopologyKey)
	if !ok {
		return Skew{Missing: true}
	}
	pods := c.Domain(value).Pods
	skew := pods + c.Self - c.Minimum()
	return Skew{Domain: value, Pods: pods, Skew: skew, Exceeds: skew > c.Constraint.MaxSkew}
}

// SideBySide is where a pod may go if taints are honoured and if they are ignored.
type SideBySide struct{ Honor, Ignore *Filtered }

// SideBySide filters with the nodeTaintsPolicy of every constraint set to Honor, and to
// Ignore.
func (s *Spreading) SideBySide(cluster *Cluster) SideBySide {
	return SideBySide{
		Honor:  s.WithTaintsPolicy(corev1.NodeInclusionPolicyHonor).Filter(cluster),
		Ignore: s.WithTaintsPolicy(corev1.NodeInclusionPolicyIgnore).Filter(cluster),
	}
}
