package spread

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// MaxScore is the score of the node that is liked best.
const MaxScore = 100

// NodeScore is how much constraints with ScheduleAnyway like a node.
type NodeScore struct {
	// Node is its place in the cluster.
	Node int
	// Ignored says that the node lacks a topology key. It scores 0.
	Ignored bool
	// Counts has the number of pods that each constraint sees for the node: those of its
	// domain, of the node alone for the key kubernetes.io/hostname (TS-13); -1 where the
	// node lacks the key.
	Counts []int
	// Raw grows with the pods; the scheduler makes Score of it, where more is better.
	Raw, Score int64
}

// Scored says how much constraints with ScheduleAnyway like nodes.
type Scored struct {
	// Counts has an entry for each constraint with ScheduleAnyway, in the pod's order. The
	// scheduler measures no skew from them.
	Counts []Count
	// Nodes has an entry for each candidate.
	Nodes []NodeScore
}

// Score says how much the constraints with ScheduleAnyway like candidates: nodes that no
// filter of the scheduler keeps the pod from, by their places in the cluster.
func (s *Spreading) Score(cluster *Cluster, candidates []int) *Scored {
	constraints := s.acting(corev1.ScheduleAnyway)
	scored := &Scored{Counts: s.count(cluster, constraints, s.keysMayLack)}
	if len(constraints) == 0 {
		return scored
	}
	scored.Nodes = make([]NodeScore, len(candidates))
	for i, n := range candidates {
		scored.Nodes[i] = NodeScore{Node: n, Ignored: !s.keysMayLack && scored.Counts[0].Nodes[n].Why == MissingKey}
	}
	weights := scored.weights(cluster)
	for i := range scored.Nodes {
		if node := &scored.Nodes[i]; !node.Ignored {
			scored.rate(node, &cluster.nodes[node.Node], weights)
		}
	}
	scored.normalize()
	return scored
}

// weights returns what a pod weighs for each constraint: the more domains, the more, so
// that constraints with few are not outweighed by how many pods each domain has.
func (s *Scored) weights(cluster *Cluster) []float64 {
	weights := make([]float64, len(s.Counts))
	for i := range s.Counts {
		key, eligible, values := s.Counts[i].Constraint.TopologyKey, 0, map[string]struct{}{}
		for j := range s.Nodes {
			if s.Nodes[j].Ignored {
				continue
			}
			value, _ := cluster.nodes[s.Nodes[j].Node].value(key)
			values[value] = struct{}{}
			eligible++
		}
		domains := len(values)
		if key == corev1.LabelHostname {
			domains = eligible
		}
		weights[i] = math.Log(float64(domains + 2))
	}
	return weights
}

func (s *Scored) rate(score *NodeScore, node *Node, weights []float64) {
	score.Counts = make([]int, len(s.Counts))
	sum := 0.0
	for i := range s.Counts {
		c := &s.Counts[i]
		value, ok := node.value(c.Constraint.TopologyKey)
		if !ok {
			score.Counts[i] = -1
			continue
		}
		pods := c.Nodes[score.Node].Pods
		if c.Constraint.TopologyKey != corev1.LabelHostname {
			pods = c.Domain(value).Pods
		}
		score.Counts[i] = pods
		sum += float64(pods)*weights[i] + float64(c.Constraint.MaxSkew-1)
	}
	score.Raw = int64(math.Round(sum))
}

// normalize turns the counts of the constraints into scores.
func (s *Scored) normalize() {
	least, most := int64(math.MaxInt64), int64(0)
	for i := range s.Nodes {
		if !s.Nodes[i].Ignored {
			least, most = min(least, s.Nodes[i].Raw), max(most, s.Nodes[i].Raw)
		}
	}
	for i := range s.Nodes {
		switch node := &s.Nodes[i]; {
		case node.Ignored:
		case most == 0:
			node.Score = MaxScore
		default:
			node.Score = MaxScore * (most + least - node.Raw) / most
		}
	}
}
