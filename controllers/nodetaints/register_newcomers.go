package nodetaints

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// late is for how long after the first look at a newcomer a policy that this replica
// had not heard of still counts. Within it the policies that were written before the
// node was created have reached everybody.
const late = 10 * time.Second

// pair is what tells the taints of a node apart.
type pair struct {
	key    string
	effect corev1.TaintEffect
}

// newcomers are the nodes that are new, and those that were and are owed a taint.
type newcomers struct {
	mu    sync.Mutex
	nodes map[types.UID]*newcomer
}

// newcomer is what is remembered of a node.
type newcomer struct {
	// until is the time of this machine until which a debt can be taken on; zero before
	// the first look.
	until time.Time
	// had are the taints that it has been seen with, and owed those that it is to be
	// given. None is in both.
	had, owed map[pair]struct{}
}

// reset forgets everything.
func (n *newcomers) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes = map[types.UID]*newcomer{}
}

// welcome takes in a node that is new.
func (n *newcomers) welcome(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[uid] == nil {
		n.nodes[uid] = &newcomer{had: map[pair]struct{}{}, owed: map[pair]struct{}{}}
	}
}

// includes reports whether a node is one of them.
func (n *newcomers) includes(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[uid] != nil
}

// see takes in with which taints a node is seen. It is not given them again.
func (n *newcomers) see(uid types.UID, taints []corev1.Taint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return
	}
	for i := range taints {
		p := pair{taints[i].Key, taints[i].Effect}
		node.had[p] = struct{}{}
		delete(node.owed, p)
	}
}

// owes reports whether a node is to be given a registered taint that it lacks. What it
// is owed once it is owed until it has it, however long that takes.
func (n *newcomers) owes(uid types.UID, p pair, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return false
	}
	if _, had := node.had[p]; had {
		return false
	}
	if _, owed := node.owed[p]; owed {
		return true
	}
	if !node.until.IsZero() && !now.Before(node.until) {
		return false
	}
	node.owed[p] = struct{}{}
	return true
}

// looked takes in that a node was looked at, and all that it is owed by the policies
// known now was asked for. It returns for how much longer others count.
func (n *newcomers) looked(uid types.UID, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[uid]
	if node == nil {
		return 0
	}
	if node.until.IsZero() {
		node.until = now.Add(late)
	}
	left := node.until.Sub(now)
	if left <= 0 && len(node.owed) == 0 {
		delete(n.nodes, uid)
	}
	return max(left, 0)
}

// leave forgets a node.
func (n *newcomers) leave(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, uid)
}
