package nodetaints

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	taintpolicy "github.com/tollgate-dev/tollgate/policy/taint"
)

// concerns reports whether a node has a taint that could need a twin, or twins.
func concerns(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationTwins] != "" || slices.ContainsFunc(node.Spec.Taints, evicts)
}

func evicts(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// IsTwin reports whether a taint of a node was added here, and the taint that it stands
// beside is there.
func IsTwin(node *corev1.Node, taint *corev1.Taint) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule {
		return false
	}
	value, recorded := recordedOf(node)[taint.Key]
	return recorded && value == taint.Value &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return evicts(t) && t.Key == taint.Key })
}

// change is a taint that is written.
type change struct {
	operation string
	// index is where the taint stands that is changed or removed.
	index int
	taint corev1.Taint
}

// plan is what is to be written to a node.
type plan struct {
	// changes are in the order in which they are carried out.
	changes []change
	// recorded is the annotation as it is, and twins what it is to say.
	recorded, twins string
}

func (p *plan) empty() bool { return len(p.changes) == 0 && p.recorded == p.twins }

// planFor returns what is to be written to a node. It is pure. Policies are those in
// force; window says that they give pods time.
func planFor(policies *policyset.Set, window bool, node *corev1.Node) plan {
	p := plan{recorded: node.Annotations[v1alpha1.AnnotationTwins]}
	var windows *eviction.Set
	if window {
		windows = policies.Evictions
	}
	recorded := recordedOf(node)
	next := map[string]string{}
	for _, t := range node.Spec.Taints {
		if evicts(t) && windows.HasWindow(v1alpha1.TaintTargetNode, t.Key) && !ofKubernetes(t.Key) {
			p.pair(node, t, recorded, next)
		}
	}
	p.release(node, policies.Taints, recorded, next)
	slices.SortFunc(p.changes, inOrder)
	p.twins = recordFor(node, next)
	return p
}

// ofKubernetes reports whether the node lifecycle controller sets the taint of effect
// NoSchedule as well, and would remove it from a node that is well.
func ofKubernetes(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// pair sees to the twin of a taint.
func (p *plan) pair(node *corev1.Node, t corev1.Taint, recorded, next map[string]string) {
	twin := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoSchedule}
	at := twinIn(node, t.Key)
	if at < 0 {
		p.changes = append(p.changes, change{operationAdd, at, twin})
		next[t.Key] = t.Value
		return
	}
	value, ours := recorded[t.Key]
	if !ours || node.Spec.Taints[at].Value != value {
		return // Somebody else's, which does what ours would.
	}
	if value != t.Value {
		p.changes = append(p.changes, change{operationChange, at, twin})
	}
	next[t.Key] = t.Value
}

// release removes the twins that are not needed any more.
func (p *plan) release(node *corev1.Node, set *taintpolicy.Set, recorded, next map[string]string) {
	for key, value := range recorded {
		if _, needed := next[key]; needed {
			continue
		}
		at := twinIn(node, key)
		if at >= 0 && node.Spec.Taints[at].Value == value && !registered(set, node, &node.Spec.Taints[at]) {
			p.changes = append(p.changes, change{operationRemove, at, node.Spec.Taints[at]})
		}
	}
}

// inOrder compares changes so that indexes, which are those of the list as it was read,
// hold when their turn comes: what is replaced, what is removed from the end of the list
// on, what is appended to it.
func inOrder(a, b change) int {
	return cmp.Or(cmp.Compare(pairedOrder[a.operation], pairedOrder[b.operation]), cmp.Compare(b.index, a.index), cmp.Compare(a.taint.Key, b.taint.Key))
}

var pairedOrder = map[string]int{operationChange: 0, operationRemove: 1, operationAdd: 2}

func twinIn(node *corev1.Node, key string) int {
	return slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// registered reports whether a TaintPolicy gives the node the taint.
func registered(set *taintpolicy.Set, node *corev1.Node, taint *corev1.Taint) bool {
	return slices.ContainsFunc(set.Register(node.Labels), func(r taintpolicy.Registered) bool { return r.Is(taint) })
}
