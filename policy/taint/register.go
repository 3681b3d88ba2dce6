package taint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// registration gives taints to nodes, read once.
type registration struct {
	nodes     labels.Selector
	taints    []v1alpha1.RegisteredTaint
	reconcile bool
}

// newRegistration reads a registration without a fault.
func newRegistration(in *v1alpha1.TaintRegistration) registration {
	nodes, err := metav1.LabelSelectorAsSelector(&in.NodeSelector)
	if err != nil {
		nodes = labels.Nothing() // ValidateRegistration parses it too, and has said so
	}
	return registration{nodes: nodes, taints: slices.Clone(in.Taints), reconcile: in.Reconcile}
}

// Registered is a taint that a node is given by a policy.
type Registered struct {
	Policy string
	Taint  v1alpha1.RegisteredTaint
	// Reconcile says that the taint is kept on nodes that exist already.
	Reconcile bool

	by *compiled
}

// Kept returns the taints that are kept on a node with labels that exists already.
func (s *Set) Kept(labels map[string]string) []corev1.Taint {
	var kept []corev1.Taint
	for _, r := range s.Register(labels) {
		if r.Reconcile {
			kept = append(kept, corev1.Taint{Key: r.Taint.Key, Value: r.Taint.Value, Effect: r.Taint.Effect})
		}
	}
	return kept
}

// Is reports whether t is the registered taint, whatever its time.
func (r *Registered) Is(t *corev1.Taint) bool {
	return r.Same(t) && t.Value == r.Taint.Value
}

// Same reports whether t stands where the registered taint would: a node has one of
// each key and effect.
func (r *Registered) Same(t *corev1.Taint) bool {
	return t.Key == r.Taint.Key && t.Effect == r.Taint.Effect
}

// String returns the taint as kubectl writes it.
func (r *Registered) String() string { return r.taint().String() }

func (r *Registered) taint() Taint {
	return Taint{Target: v1alpha1.TaintTargetNode, Key: r.Taint.Key, Value: r.Taint.Value, Effect: r.Taint.Effect}
}

// Registers reports whether any policy gives nodes taints.
func (s *Set) Registers() bool { return s != nil && len(s.registering) > 0 }

// Register returns the taints for a node with these labels: of all policies, in the
// order of their names, one for each key and effect, the first. It is kept if one of
// those that name the same taint asks for it.
func (s *Set) Register(nodeLabels map[string]string) []Registered {
	if !s.Registers() {
		return nil
	}
	var found []Registered
	for _, position := range s.registering {
		c := s.Policies[position]
		for i := range c.registers {
			if !c.registers[i].nodes.Matches(labels.Set(nodeLabels)) {
				continue
			}
			for _, t := range c.registers[i].taints {
				found = merge(found, Registered{Policy: c.name, Taint: t, Reconcile: c.registers[i].reconcile, by: c})
			}
		}
	}
	return found
}

func merge(found []Registered, r Registered) []Registered {
	at := slices.IndexFunc(found, func(have Registered) bool {
		return have.Taint.Key == r.Taint.Key && have.Taint.Effect == r.Taint.Effect
	})
	if at < 0 {
		return append(found, r)
	}
	if found[at].Taint == r.Taint && r.Reconcile {
		found[at].Reconcile = true
	}
	return found
}

// Missing returns those of the taints for a node with these labels that it does not
// have. One of the same key and effect with another value is not missing: whoever may
// change taints has given it that.
func (s *Set) Missing(nodeLabels map[string]string, taints []corev1.Taint) []Registered {
	return slices.DeleteFunc(s.Register(nodeLabels), func(r Registered) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return r.Same(&t) })
	})
}
