package nodetaints

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// nodeUIDs maps names to the UIDs of nodes that steps last read. A step can store state of
// a node after its deletion event; the next step finds that the name has no node, or
// another, and cleans up.
type nodeUIDs struct {
	mu     sync.Mutex
	byName map[string]types.UID
}

// reset removes all nodes.
func (n *nodeUIDs) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byName = map[string]types.UID{}
}

// observe stores the UID of the node with a name; an empty UID means that there is none.
// It returns the previous UID, and whether that differs.
func (n *nodeUIDs) observe(name string, uid types.UID) (types.UID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, ok := n.byName[name]
	if uid == "" {
		delete(n.byName, name)
	} else {
		n.byName[name] = uid
	}
	return before, ok && before != uid
}
