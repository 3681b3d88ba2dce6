package spread

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Node is what spreading looks at of a node.
type Node struct {
	Name string
	// Labels may be nil for none.
	Labels labels.Labels
	// Taints are those of its spec. A cordoned node has the taint
	// node.kubernetes.io/unschedulable; only that counts (TS-03).
	Taints []corev1.Taint
}

// NodeOf returns what spreading looks at of node, and shares it.
func NodeOf(node *corev1.Node) Node {
	return Node{Name: node.Name, Labels: labels.Set(node.Labels), Taints: node.Spec.Taints}
}

// value returns the value of a topology key, and whether the node has it.
func (n *Node) value(key string) (string, bool) { return n.labels().Lookup(key) }

func (n *Node) labels() labels.Labels { return orNone(n.Labels) }

func orNone(has labels.Labels) labels.Labels {
	if has == nil {
		return labels.Set(nil)
	}
	return has
}

// Placed is a pod on a node.
type Placed struct {
	Namespace string
	Node      string
	// Labels may be nil for none.
	Labels labels.Labels
	// Terminating pods are not counted (TS-10).
	Terminating bool
}

// PlacedOf returns what is looked at of a pod. It is false for those that the scheduler
// does not see on any node: without one, or over.
func PlacedOf(pod *corev1.Pod) (Placed, bool) {
	placed := Placed{
		Namespace:   pod.Namespace,
		Node:        pod.Spec.NodeName,
		Labels:      labels.Set(pod.Labels),
		Terminating: pod.DeletionTimestamp != nil,
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return placed, placed.Node != "" && !over
}

// Cluster is the nodes and the pods on them. Make it with NewCluster.
type Cluster struct {
	nodes []Node
	pods  []Placed
	// positions has where a node stands in nodes, by name.
	positions map[string]int
}

// NewCluster returns a cluster, and shares what it is given. The names of nodes are
// unique. Pods on other nodes are not counted, and the pod that is asked about is not
// among them.
func NewCluster(nodes []Node, pods []Placed) *Cluster {
	c := &Cluster{nodes: nodes, pods: pods, positions: make(map[string]int, len(nodes))}
	for i := range nodes {
		c.positions[nodes[i].Name] = i
	}
	return c
}

// Nodes returns the nodes, in the order in which results have them. They must not be
// written to.
func (c *Cluster) Nodes() []Node { return c.nodes }
