package spread

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Node is the part of a node that spreading looks at.
type Node struct {
	Name string
	// Labels may be nil for none.
	Labels labels.Labels
	// Taints are those of its spec. A cordoned node has the taint
	// node.kubernetes.io/unschedulable; only that counts (TS-03).
	Taints []corev1.Taint
}

// NodeOf returns the part of a node that spreading looks at, and shares it.
func NodeOf(node *corev1.Node) Node {
	return Node{Name: node.Name, Labels: labels.Set(node.Labels), Taints: node.Spec.Taints}
}

func (n *Node) labels() labels.Labels { return selector.Labels(n.Labels) }

// missingKey returns the first topology key of constraints that the node lacks, nil for none.
func (n *Node) missingKey(constraints []Constraint) *string {
	for i := range constraints {
		if _, ok := n.labels().Lookup(constraints[i].TopologyKey); !ok {
			return &constraints[i].TopologyKey
		}
	}
	return nil
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

// PlacedOf returns a pod on a node. It is false for pods that the scheduler
// does not see on any node: without one, or finished.
func PlacedOf(pod *corev1.Pod) (Placed, bool) {
	placed := Placed{
		Namespace:   pod.Namespace,
		Node:        pod.Spec.NodeName,
		Labels:      labels.Set(pod.Labels),
		Terminating: pod.DeletionTimestamp != nil,
	}
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return placed, placed.Node != "" && !finished
}

// Cluster is the nodes and the pods on them. Make it with NewCluster.
type Cluster struct {
	nodes []Node
	pods  []Placed
	// positions has where a node stands in nodes, by name.
	positions map[string]int
}

// NewCluster returns a cluster, and shares its arguments. The names of nodes are
// unique. Pods on other nodes are not counted, and the pod that is to be placed is not
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

// Affine reports whether a node is one that the pod requires by its nodeSelector and its
// required node affinity, whatever its taints.
func (s *Spreading) Affine(node *Node) bool {
	has, r := node.labels(), &s.required
	return r.selector.Matches(has) && (!r.limited || slices.ContainsFunc(r.terms, func(t term) bool { return t.matches(node.Name, has) }))
}

// required is the nodeSelector and the required node affinity of a pod, read once.
//
// The package nodeaffinity of k8s.io/component-helpers matches only Nodes with a map of
// labels, which the tracker does not keep, and makes allocations for each.
type required struct {
	selector labels.Selector
	// terms are alternatives, of which limited says that one has to match.
	terms   []term
	limited bool
}

// term is a term that can match: it has requirements, and all can be read.
type term struct {
	labels []labels.Requirement
	// fields have In or NotIn and one value each.
	fields []corev1.NodeSelectorRequirement
}

// RequiredNodes returns the required node affinity of a pod, nil for none.
func RequiredNodes(affinity *corev1.Affinity) *corev1.NodeSelector {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func readRequired(spec *corev1.PodSpec) required {
	r := required{selector: labels.SelectorFromSet(spec.NodeSelector)}
	if nodes := RequiredNodes(spec.Affinity); nodes != nil {
		r.limited = true
		for i := range nodes.NodeSelectorTerms {
			if t, ok := readTerm(&nodes.NodeSelectorTerms[i]); ok {
				r.terms = append(r.terms, t)
			}
		}
	}
	return r
}

// readTerm returns a term, and false for one that matches nothing: an empty one, and one
// that cannot be read, which the scheduler passes over.
func readTerm(in *corev1.NodeSelectorTerm) (term, bool) {
	t := term{fields: in.MatchFields}
	for i := range in.MatchExpressions {
		e := &in.MatchExpressions[i]
		requirement, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values) // fails for an unknown operator too
		if err != nil {
			return term{}, false
		}
		t.labels = append(t.labels, *requirement)
	}
	for i := range t.fields {
		f := &t.fields[i]
		if len(f.Values) != 1 || f.Operator != corev1.NodeSelectorOpIn && f.Operator != corev1.NodeSelectorOpNotIn {
			return term{}, false
		}
	}
	return t, len(t.labels)+len(t.fields) > 0
}

// operators are those of node selectors as label selectors have them.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func (t *term) matches(name string, has labels.Labels) bool {
	for i := range t.labels {
		if !t.labels[i].Matches(has) {
			return false
		}
	}
	for i := range t.fields {
		f, value := &t.fields[i], "" // nodes have no other field: all others are empty
		if f.Key == metav1.ObjectNameField {
			value = name
		}
		if (value == f.Values[0]) != (f.Operator == corev1.NodeSelectorOpIn) {
			return false
		}
	}
	return true
}
