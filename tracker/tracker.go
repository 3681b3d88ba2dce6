package tracker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Tracker holds nodes and the pods on them. All methods are goroutine-safe. The
// methods that change it return the keys of the pods whose fate may have changed
// by that, in no order, so that an event costs what it touches.
type Tracker struct {
	mu sync.RWMutex
	// pods holds every pod that is on a node, known or not.
	pods map[Key]*Pod
	// nodes holds every known node and every node named by a pod. An entry goes
	// when it is neither.
	nodes map[string]*nodeState
}

type nodeState struct {
	// known is true while the node exists; the fields down to taints mean nothing
	// when it does not.
	known           bool
	uid             types.UID
	resourceVersion string
	// taints is replaced, never written to: callers hold it without the lock.
	taints []Taint
	pods   map[*Pod]struct{}
}

// New returns an empty tracker.
func New() *Tracker {
	return &Tracker{pods: map[Key]*Pod{}, nodes: map[string]*nodeState{}}
}

// SetNode records a node as it was seen at now.
func (t *Tracker) SetNode(node Node, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.node(node.Name).set(node, now)
}

// RefreshNode records a node that the API server returned to a request of our own.
// The answer may be overtaken by the watch while it is on its way, so it changes
// nothing unless that very node is known: SetNode would bring back one that is
// deleted.
func (t *Tracker) RefreshNode(node Node, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, ok := t.nodes[node.Name]
	if !ok || !state.known || state.uid != node.UID {
		return nil
	}
	return state.set(node, now)
}

func (s *nodeState) set(node Node, now time.Time) []Key {
	if s.known && older(node.ResourceVersion, s.resourceVersion) {
		return nil
	}
	var prior []Taint
	witnessed := s.known && s.uid == node.UID
	if witnessed {
		prior = s.taints
	}
	taints := merge(node.Taints, prior, witnessed, Source{Kind: SourceNode, Name: node.Name}, now)
	changed := !slices.EqualFunc(taints, s.taints, sameEffect)
	s.known, s.uid, s.resourceVersion = true, node.UID, node.ResourceVersion
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
	if !ok || !state.known || state.uid != uid {
		return nil
	}
	tainted := len(state.taints) > 0
	state.known, state.uid, state.resourceVersion, state.taints = false, "", "", nil
	t.prune(name)
	if !tainted {
		return nil
	}
	return state.keys()
}

// SetPod records a pod. A pod without a node is nobody's concern yet and is not
// kept.
func (t *Tracker) SetPod(pod Pod) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setPod(t.pods[pod.Key], pod)
}

// RefreshPod records a pod that the API server returned to a request of our own.
// Like RefreshNode, it changes nothing unless that very pod is known.
func (t *Tracker) RefreshPod(pod Pod) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.pods[pod.Key]
	if old == nil {
		return nil
	}
	return t.setPod(old, pod)
}

// setPod puts pod in the place of old, nil for none.
func (t *Tracker) setPod(old *Pod, pod Pod) []Key {
	if old != nil && older(pod.ResourceVersion, old.ResourceVersion) {
		return nil
	}
	if pod.NodeName == "" {
		return t.remove(old)
	}
	if old == nil {
		t.insert(&pod)
		return t.ifTainted(&pod)
	}
	pod.Terminating = pod.Terminating || old.Terminating
	if old.NodeName == pod.NodeName {
		same := sameFate(old, &pod)
		t.replace(old, &pod)
		if same {
			return nil
		}
		return t.ifTainted(&pod)
	}
	left := t.remove(old)
	t.insert(&pod)
	if left != nil {
		return left
	}
	return t.ifTainted(&pod)
}

// DeletePod forgets a pod.
func (t *Tracker) DeletePod(key Key) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(t.pods[key])
}

// SetTerminating records that the API server accepted the deletion of a pod.
func (t *Tracker) SetTerminating(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.pods[key]
	if old == nil || old.Terminating {
		return
	}
	pod := *old
	pod.Terminating = true
	t.replace(old, &pod)
}

// Lookup returns a pod and the NoExecute taints that hold for it, both as of one
// moment. The taints must not be written to.
func (t *Tracker) Lookup(key Key) (Pod, []Taint, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	pod := t.pods[key]
	if pod == nil {
		return Pod{}, nil, false
	}
	return *pod, t.nodes[pod.NodeName].taints, true
}

// Taints returns the UID and the NoExecute taints of a node. The taints must not
// be written to.
func (t *Tracker) Taints(name string) (types.UID, []Taint) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[name]
	if !ok {
		return "", nil
	}
	return state.uid, state.taints
}

// PodsOn returns the keys of the pods on a node, sorted.
func (t *Tracker) PodsOn(name string) []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	state, ok := t.nodes[name]
	if !ok {
		return nil
	}
	keys := state.keys()
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return keys
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

func (t *Tracker) prune(name string) {
	if state := t.nodes[name]; !state.known && len(state.pods) == 0 {
		delete(t.nodes, name)
	}
}

func (t *Tracker) insert(pod *Pod) {
	t.pods[pod.Key] = pod
	t.node(pod.NodeName).pods[pod] = struct{}{}
}

// replace puts a new version of a pod in the place of the old one on its node.
func (t *Tracker) replace(old, pod *Pod) {
	delete(t.nodes[old.NodeName].pods, old)
	t.insert(pod)
}

// remove forgets a pod, nil for none.
func (t *Tracker) remove(pod *Pod) []Key {
	if pod == nil {
		return nil
	}
	keys := t.ifTainted(pod)
	delete(t.pods, pod.Key)
	delete(t.nodes[pod.NodeName].pods, pod)
	t.prune(pod.NodeName)
	return keys
}

// ifTainted returns the key of pod when a taint holds for it: without one, a
// pod's fate is to stay, whatever else changes.
func (t *Tracker) ifTainted(pod *Pod) []Key {
	if len(t.nodes[pod.NodeName].taints) == 0 {
		return nil
	}
	return []Key{pod.Key}
}

func (s *nodeState) keys() []Key {
	keys := make([]Key, 0, len(s.pods))
	for pod := range s.pods {
		keys = append(keys, pod.Key)
	}
	return keys
}

// older reports whether a is surely a version before b. What cannot be compared
// is taken as new, so that nothing is lost.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
