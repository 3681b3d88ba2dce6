package spread

import (
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

// value returns the value of a topology key, and whether the node has it.
func (n *Node) value(key string) (string, bool) { return n.labels().Lookup(key) }

func (n *Node) labels() labels.Labels { return selector.Labels(n.Labels) }

// missingKey returns the first topology key of constraints that the node lacks, nil for none.
func (n *Node) missingKey(constraints []Constraint) *string {
	for i := range constraints {
		if _, ok := n.value(constraints[i].TopologyKey); !ok {
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
func (s *Spreading) Affine(node *Node) bool { return s.required.matches(node) }

// required is the nodeSelector and the required node affinity of a pod, read once. The
// zero value requires nothing.
//
// The package nodeaffinity of k8s.io/component-helpers matches only Nodes with a map of
// labels, which the tracker does not keep, and makes allocations for each.
type required struct {
	// selector is nil for none.
	selector labels.Selector
	// terms are alternatives, of which limited says that one has to match.
	terms   []term
	limited bool
}

// term is a term that can match: it has requirements, and all can be read.
type term struct {
	labels []labels.Requirement
	names  []nameRequirement
}

// nameRequirement is a requirement of the field metadata.name.
type nameRequirement struct {
	value string
	not   bool
}

func readRequired(spec *corev1.PodSpec) required {
	var r required
	if len(spec.NodeSelector) > 0 {
		r.selector = labels.SelectorFromSet(spec.NodeSelector)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return r
	}
	if required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		r.limited = true
		for i := range required.NodeSelectorTerms {
			if t, ok := readTerm(&required.NodeSelectorTerms[i]); ok {
				r.terms = append(r.terms, t)
			}
		}
	}
	return r
}

// matches reports whether a node is one that the pod requires.
func (r *required) matches(node *Node) bool {
	has := node.labels()
	if r.selector != nil && !r.selector.Matches(has) {
		return false
	}
	for i := range r.terms {
		if r.terms[i].matches(node.Name, has) {
			return true
		}
	}
	return !r.limited
}

// effort returns how many comparisons it takes at most to match a node.
func (r *required) effort() int {
	n := 0
	if r.selector != nil {
		requirements, _ := r.selector.Requirements()
		n = len(requirements)
	}
	for i := range r.terms {
		n += len(r.terms[i].names)
		for j := range r.terms[i].labels {
			n += 1 + len(r.terms[i].labels[j].ValuesUnsorted())
		}
	}
	return n
}

// readTerm returns a term, and false for one that matches nothing: an empty one, and one
// that cannot be read, which the scheduler passes over.
func readTerm(in *corev1.NodeSelectorTerm) (term, bool) {
	var t term
	for i := range in.MatchExpressions {
		e := &in.MatchExpressions[i]
		requirement, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values) // fails for an unknown operator too
		if err != nil {
			return term{}, false
		}
		t.labels = append(t.labels, *requirement)
	}
	for i := range in.MatchFields {
		f := &in.MatchFields[i]
		not := f.Operator == corev1.NodeSelectorOpNotIn
		if len(f.Values) != 1 || !not && f.Operator != corev1.NodeSelectorOpIn {
			return term{}, false
		}
		if f.Key == metav1.ObjectNameField {
			t.names = append(t.names, nameRequirement{value: f.Values[0], not: not})
		} else if (f.Values[0] == "") == not { // nodes have no other field: all others are empty
			return term{}, false
		}
	}
	return t, len(in.MatchExpressions)+len(in.MatchFields) > 0
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
	for _, n := range t.names {
		if (name == n.value) == n.not {
			return false
		}
	}
	return true
}
