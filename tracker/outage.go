package tracker

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// labelExcluded is on nodes that do not count when Kubernetes finds out whether all
// nodes are down (pkg/controller/nodelifecycle). Its value does not matter.
const labelExcluded = "node.kubernetes.io/exclude-disruption"

// outage counts nodes, all that count and those of them that are down.
type outage struct{ nodes, down int }

// NodesDown returns how many nodes there are, without those that are labelled
// node.kubernetes.io/exclude-disruption, and how many of them are down: they have the
// taint node.kubernetes.io/not-ready or unreachable, with any effect. It costs the
// same whatever there is.
func (t *Tracker) NodesDown() (nodes, down int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.outage.nodes, t.outage.down
}

// count counts a node so many times. Of a node that is not ready or not
// reached Kubernetes always says so by a taint with effect NoSchedule, also when it
// withholds the one with NoExecute because all nodes are down (J03).
func (o *outage) count(node *Node, times int) {
	if node.Labels.Has(labelExcluded) {
		return
	}
	o.nodes += times
	if slices.ContainsFunc(node.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable
	}) {
		o.down += times
	}
}
