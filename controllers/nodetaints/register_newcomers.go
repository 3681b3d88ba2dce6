package nodetaints

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// latePolicyWindow is how long after the first step for a newcomer a policy that is new to
// this replica still counts. Policies older than the node reach every replica within it.
const latePolicyWindow = 10 * time.Second

// taintID identifies a taint of a node.
type taintID struct {
	key    string
	effect corev1.TaintEffect
}

// newcomers are the nodes that are new, or have pending taints. The methods are
// goroutine-safe.
type newcomers struct {
	mu    sync.Mutex
	nodes map[types.UID]*newcomer
}

// newcomer is the state of one node.
type newcomer struct {
	// until is the time, by the clock of this machine, until which taints can become
	// pending; zero before the first step.
	until time.Time
	// observed are the taints that the node has or had, and pending those to be added. No
	// taint is in both.
	observed, pending map[taintID]struct{}
}

// reset removes all nodes.
func (n *newcomers) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes = map[types.UID]*newcomer{}
}

// add adds a node that is new.
func (n *newcomers) add(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[uid] == nil {
		n.nodes[uid] = &newcomer{observed: map[taintID]struct{}{}, pending: map[taintID]struct{}{}}
	}
}

// has reports whether a node is a newcomer.
func (n *newcomers) has(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[uid] != nil
}

// observe records the taints of a node. They are not added again.
func (n *newcomers) observe(uid types.UID, taints []corev1.Taint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return
	}
	for i := range taints {
		p := taintID{taints[i].Key, taints[i].Effect}
		node.observed[p] = struct{}{}
		delete(node.pending, p)
	}
}

// require reports whether a registered taint that a node lacks is to be added, and marks
// it as pending. A pending taint stays so until the node has it.
func (n *newcomers) require(uid types.UID, p taintID, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return false
	}
	if _, observed := node.observed[p]; observed {
		return false
	}
	if _, pending := node.pending[p]; pending {
		return true
	}
	if !node.until.IsZero() && !now.Before(node.until) {
		return false
	}
	node.pending[p] = struct{}{}
	return true
}

// finishStep records that the step has called require for all taints of the current
// policies. It returns how much longer later policies count.
func (n *newcomers) finishStep(uid types.UID, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return 0
	}
	if node.until.IsZero() {
		node.until = now.Add(latePolicyWindow)
	}
	left := node.until.Sub(now)
	if left <= 0 && len(node.pending) == 0 {
		delete(n.nodes, uid)
	}
	return max(left, 0)
}

// remove removes a node.
func (n *newcomers) remove(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, uid)
}
