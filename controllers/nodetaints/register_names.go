package nodetaints

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// names are the nodes that steps last found under a name. A step may still take in a node
// whose deletion was announced meanwhile; the next one finds it gone, by its name only.
type names struct {
	mu    sync.Mutex
	found map[string]types.UID
}

// reset forgets all nodes.
func (n *names) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = map[string]types.UID{}
}

// see takes in which node has a name, none for the empty UID. It returns the one that had
// it before, if another.
func (n *names) see(name string, uid types.UID) (types.UID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, ok := n.found[name]
	if uid == "" {
		delete(n.found, name)
	} else {
		n.found[name] = uid
	}
	return before, ok && before != uid
}
