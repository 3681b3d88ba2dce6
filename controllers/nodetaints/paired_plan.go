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

// mayNeedPairing reports whether a node has a NoExecute taint or the annotation of paired
// taints.
func mayNeedPairing(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationTwins] != "" || slices.ContainsFunc(node.Spec.Taints, evicts)
}

func evicts(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// IsTwin reports whether a taint of a node was added by PairingController and its
// NoExecute taint exists.
func IsTwin(node *corev1.Node, taint *corev1.Taint) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule {
		return false
	}
	value, recorded := recordedTaints(node)[taint.Key]
	return recorded && value == taint.Value &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return evicts(t) && t.Key == taint.Key })
}

// change is the write of one taint.
type change struct {
	operation string
	// index is the position of the changed or removed taint in spec.taints.
	index int
	taint corev1.Taint
}

// plan is the set of writes that a node needs.
type plan struct {
	// changes are in the order in which the patch applies them.
	changes []change
	// oldRecord is the annotation of the node, and newRecord the desired one.
	oldRecord, newRecord string
}

func (p *plan) empty() bool { return len(p.changes) == 0 && p.oldRecord == p.newRecord }

// planFor returns the writes that a node needs. It is pure. window reports mode Window.
func planFor(policies *policyset.Set, window bool, node *corev1.Node) plan {
	p := plan{oldRecord: node.Annotations[v1alpha1.AnnotationTwins]}
	var windows *eviction.Set
	if window {
		windows = policies.Evictions
	}
	recorded := recordedTaints(node)
	next := map[string]string{}
	for _, t := range node.Spec.Taints {
		if evicts(t) && windows.HasWindow(v1alpha1.TaintTargetNode, t.Key) && !setByKubernetes(t.Key) {
			p.pair(node, t, recorded, next)
		}
	}
	p.release(node, policies.Taints, recorded, next)
	slices.SortFunc(p.changes, compareChanges)
	p.newRecord = annotationOf(node, next)
	return p
}

// setByKubernetes reports whether the node lifecycle controller also sets the taint with
// effect NoSchedule, and would remove it from a ready node.
func setByKubernetes(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// pair plans the paired taint of a NoExecute taint.
func (p *plan) pair(node *corev1.Node, t corev1.Taint, recorded, next map[string]string) {
	pairedTaint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoSchedule}
	at := pairedIndex(node, t.Key)
	if at < 0 {
		p.changes = append(p.changes, change{operationAdd, at, pairedTaint})
		next[t.Key] = t.Value
		return
	}
	value, managed := recorded[t.Key]
	if !managed || node.Spec.Taints[at].Value != value {
		return // The taint of another writer has the same effect.
	}
	if value != t.Value {
		p.changes = append(p.changes, change{operationChange, at, pairedTaint})
	}
	next[t.Key] = t.Value
}

// release plans the removal of paired taints that are not needed any more.
func (p *plan) release(node *corev1.Node, set *taintpolicy.Set, recorded, next map[string]string) {
	for key, value := range recorded {
		if _, needed := next[key]; needed {
			continue
		}
		at := pairedIndex(node, key)
		if at >= 0 && node.Spec.Taints[at].Value == value && !registered(set, node, &node.Spec.Taints[at]) {
			p.changes = append(p.changes, change{operationRemove, at, node.Spec.Taints[at]})
		}
	}
}

// compareChanges orders changes so that the indexes, which refer to the list as it was
// read, stay valid: first replacements, then removals from the end of the list, then
// additions.
func compareChanges(a, b change) int {
	return cmp.Or(cmp.Compare(pairedOrder[a.operation], pairedOrder[b.operation]), cmp.Compare(b.index, a.index), cmp.Compare(a.taint.Key, b.taint.Key))
}

var pairedOrder = map[string]int{operationChange: 0, operationRemove: 1, operationAdd: 2}

func pairedIndex(node *corev1.Node, key string) int {
	return slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// registered reports whether a TaintPolicy registers the taint on the node.
func registered(set *taintpolicy.Set, node *corev1.Node, taint *corev1.Taint) bool {
	return slices.ContainsFunc(set.Register(node.Labels), func(r taintpolicy.Registered) bool { return r.Is(taint) })
}
