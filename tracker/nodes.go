package tracker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeState is a known node.
type nodeState struct {
	// Node is the node as it was last seen. Its lists are replaced, never written to.
	Node
	// taints is replaced, never written to: callers hold it without the lock.
	taints []Taint
}

// SetNode records a node as it was seen at now.
func (t *Tracker) SetNode(node Node, now time.Time) []Key {
	return t.setNode(node, nil, now)
}

// RefreshNode records a node that the API server returned to a request of our own.
// The answer may be overtaken by the watch while it is on its way, so it changes
// nothing unless that very node is known: SetNode would bring back one that is
// deleted. Before is the version that was known when the request was made, see VersionOf; an
// answer that is older shows that the API server's storage was restored, and is taken.
func (t *Tracker) RefreshNode(node Node, before string, now time.Time) []Key {
	return t.setNode(node, &before, now)
}

// setNode records a node, see overtaken for before.
func (t *Tracker) setNode(node Node, before *string, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overtaken(SourceNode, node.Identity(), before) {
		return nil
	}
	old, known := t.nodes[node.Name]
	var prior []Taint
	witnessed := known && old.UID == node.UID
	if witnessed {
		prior = old.taints
	}
	taints := merge(node.Taints, prior, witnessed, Source{Kind: SourceNode, Name: node.Name}, now)
	changed := !slices.EqualFunc(taints, old.taints, sameEffect) || !slices.Equal(twinsOf(node.Taints), twinsOf(old.Taints))
	if !changed {
		taints = old.taints
	}
	if known {
		t.outage.count(&old.Node, -1)
	}
	if !known || !slices.Equal(old.Labels, node.Labels) || !slices.EqualFunc(old.Taints, node.Taints, sameWritten) {
		t.nodesVersion++
	}
	t.nodes[node.Name] = nodeState{Node: node, taints: taints}
	t.outage.count(&node, 1)
	if !changed {
		return nil
	}
	return t.keysOn(node.Name)
}

// DeleteNode forgets the node of that name and UID; one that was created anew
// since stays. Its taints go with it. The pods stay until they go themselves:
// collecting pods of a missing node is the work of Kubernetes' pod garbage
// collector.
func (t *Tracker) DeleteNode(name string, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.nodes[name]
	if !known || old.UID != uid {
		return nil
	}
	delete(t.nodes, name)
	t.nodesVersion++
	t.outage.count(&old.Node, -1)
	if len(old.taints) == 0 {
		return nil
	}
	return t.keysOn(name)
}

// sameWritten reports whether two taints are the same to the scheduler, which does not
// look at the time.
func sameWritten(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }

// Taints returns the UID and the NoExecute taints of a node. The taints must not
// be written to.
func (t *Tracker) Taints(name string) (types.UID, []Taint) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state := t.nodes[name]
	return state.UID, state.taints
}

// PodsOn returns the keys of the pods on a node, sorted.
func (t *Tracker) PodsOn(name string) []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return sortKeys(t.keysOn(name))
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

// keysOn returns the keys of the pods on a node.
func (t *Tracker) keysOn(node string) []Key {
	pods := t.onNode[node]
	keys := make([]Key, 0, len(pods))
	for pod := range pods {
		keys = append(keys, pod.Key)
	}
	return keys
}
