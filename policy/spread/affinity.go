package spread

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

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

// nameRequirement is a requirement of a field. Nodes have the field metadata.name alone;
// all others are empty.
type nameRequirement struct {
	named bool
	value string
	not   bool
}

func readRequired(spec *corev1.PodSpec) required {
	var r required
	if len(spec.NodeSelector) > 0 {
		r.selector = labels.SelectorFromSet(spec.NodeSelector)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return r
	}
	r.limited = true
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if t, ok := readTerm(&terms[i]); ok {
			r.terms = append(r.terms, t)
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
		requirement, err := readExpression(&in.MatchExpressions[i])
		if err != nil {
			return term{}, false
		}
		t.labels = append(t.labels, *requirement)
	}
	for i := range in.MatchFields {
		f := &in.MatchFields[i]
		if len(f.Values) != 1 || f.Operator != corev1.NodeSelectorOpIn && f.Operator != corev1.NodeSelectorOpNotIn {
			return term{}, false
		}
		t.names = append(t.names, nameRequirement{
			named: f.Key == metav1.ObjectNameField, value: f.Values[0], not: f.Operator == corev1.NodeSelectorOpNotIn,
		})
	}
	return t, len(t.labels)+len(t.names) > 0
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

// readExpression fails for an operator that is not known, as for values that do not go
// with it.
func readExpression(in *corev1.NodeSelectorRequirement) (*labels.Requirement, error) {
	return labels.NewRequirement(in.Key, operators[in.Operator], in.Values)
}

func (t *term) matches(name string, has labels.Labels) bool {
	for i := range t.labels {
		if !t.labels[i].Matches(has) {
			return false
		}
	}
	for i := range t.names {
		if !t.names[i].matches(name) {
			return false
		}
	}
	return true
}

func (r *nameRequirement) matches(name string) bool {
	if !r.named {
		name = ""
	}
	return (name == r.value) != r.not
}
