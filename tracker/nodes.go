package tracker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type nodeState struct {
	// Node is the node as it was last seen, zero while there is none. Its lists are replaced,
	// never written to.
	Node
	// known is true while the node exists.
	known bool
	// taints is replaced, never written to: callers hold it without the lock.
	taints []Taint
	pods   map[*Pod]struct{}
}

// SetNode records a node as it was seen at now.
func (t *Tracker) SetNode(node Node, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setNode(t.node(node.Name), node, now)
}

// RefreshNode records a node that the API server returned to a request of our own.
// The answer may be overtaken by the watch while it is on its way, so it changes
// nothing unless that very node is known: SetNode would bring back one that is
// deleted. Before is the version that was known when the request was made, see VersionOf; an
// answer that is older shows that the API server's storage was restored, and is taken.
func (t *Tracker) RefreshNode(node Node, before string, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, ok := t.nodes[node.Name]
	if !ok || !state.known || state.UID != node.UID {
		return nil
	}
	if state.ResourceVersion == before {
		state.ResourceVersion = ""
	}
	return t.setNode(state, node, now)
}

func (t *Tracker) setNode(s *nodeState, node Node, now time.Time) []Key {
	if s.known && Older(node.ResourceVersion, s.ResourceVersion) {
		return nil
	}
	var prior []Taint
	witnessed := s.known && s.UID == node.UID
	if witnessed {
		prior = s.taints
	}
	taints := merge(node.Taints, prior, witnessed, Source{Kind: SourceNode, Name: node.Name}, now)
	changed := !slices.EqualFunc(taints, s.taints, sameEffect) || !slices.Equal(twinsOf(node.Taints), twinsOf(s.Taints))
	t.outage.count(s, -1)
	if !s.known || !slices.Equal(s.Labels, node.Labels) || !slices.EqualFunc(s.Taints, node.Taints, sameWritten) {
		t.nodesVersion++
	}
	s.Node, s.known = node, true
	t.outage.count(s, 1)
	if !changed {
		return nil
	}
	s.taints = taints
	return s.keys()
}

// DeleteNode forgets the node of that name and UID; one that was created anew
// since stays. Its taints go with it. The pods stay until they go themselves:
// collecting pods of a missing node is the work of Kubernetes' pod garbage
// collector.
func (t *Tracker) DeleteNode(name string, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, ok := t.nodes[name]
	if !ok || !state.known || state.UID != uid {
		return nil
	}
	tainted := len(state.taints) > 0
	t.nodesVersion++
	t.outage.count(state, -1)
	*state = nodeState{pods: state.pods}
	t.pruneNode(name)
	if !tainted {
		return nil
	}
	return state.keys()
}

// sameWritten reports whether two taints are the same to the scheduler, which does not
// look at the time.
func sameWritten(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }

// Taints returns the UID and the NoExecute taints of a node. The taints must not
// be written to.
func (t *Tracker) Taints(name string) (types.UID, []Taint) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[name]
	if !ok {
		return "", nil
	}
	return state.UID, state.taints
}

// PodsOn returns the keys of the pods on a node, sorted.
func (t *Tracker) PodsOn(name string) []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[name]
	if !ok {
		return nil
	}
	return sortKeys(state.keys())
}

// Tainted returns the names of the nodes that have a NoExecute taint, sorted.
func (t *Tracker) Tainted() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []string
	for name, state := range t.nodes {
		if len(state.taints) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (t *Tracker) node(name string) *nodeState {
	state, ok := t.nodes[name]
	if !ok {
		state = &nodeState{pods: map[*Pod]struct{}{}}
		t.nodes[name] = state
	}
	return state
}

func (t *Tracker) pruneNode(name string) {
	if state := t.nodes[name]; !state.known && len(state.pods) == 0 {
		delete(t.nodes, name)
	}
}

func (s *nodeState) keys() []Key {
	keys := make([]Key, 0, len(s.pods))
	for pod := range s.pods {
		keys = append(keys, pod.Key)
	}
	return keys
}
