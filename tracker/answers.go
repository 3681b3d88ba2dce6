package tracker

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// DeviceTaints returns all taints of a device, whatever their effect: those of its
// slice, in their order, then those of rules by name. They must not be written to.
func (t *Tracker) DeviceTaints(id device.ID) []Taint {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v := view{Tracker: t}
	return v.taints(id)
}

// ClaimsOn returns the claims that a device is allocated to, sorted.
func (t *Tracker) ClaimsOn(id device.ID) []ClaimName {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []ClaimName
	for _, state := range t.allocated.on(id) {
		names = append(names, state.claim.ClaimName)
	}
	slices.SortFunc(names, compareClaims)
	return names
}

// PodsUsing returns the keys of the pods that use a device, sorted.
func (t *Tracker) PodsUsing(id device.ID) []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	users := podSet{repeated: true}
	for _, state := range t.allocated.on(id) {
		for _, pod := range state.users {
			if state.claim.givesTo(pod, t.podGroups) {
				users.pods = append(users.pods, pod)
			}
		}
	}
	return sortKeys(users.keys())
}

// Devices returns the published devices that are selected, sorted.
func (t *Tracker) Devices(selector device.Selector) []device.ID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []device.ID
	t.eachPublished(selector, func(id device.ID) { ids = append(ids, id) })
	slices.SortFunc(ids, device.Compare)
	return slices.Compact(ids)
}

// Obstacle is a taint because of which a device cannot be used.
type Obstacle struct {
	Device device.ID
	Taint  Taint
	// Until is when the taint was no longer tolerated; zero when it never was.
	Until time.Time
}

// Untolerated returns the taints that keep pods from using devices that are
// allocated already: those with effect NoSchedule or NoExecute that the tolerations
// of the allocation do not cover, or cover only until a time that is over. It
// returns false while the taints are not known.
func (t *Tracker) Untolerated(devices []AllocatedDevice, now time.Time) ([]Obstacle, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.devicesKnown {
		return nil, false
	}
	v := view{Tracker: t}
	var obstacles []Obstacle
	for i := range devices {
		for _, taint := range v.taints(devices[i].ID) {
			if until, open := tolerated(devices[i].Tolerations, taint, now); !open {
				obstacles = append(obstacles, Obstacle{Device: devices[i].ID, Taint: taint, Until: until})
			}
		}
	}
	return obstacles, true
}

// tolerated reports whether a taint is no obstacle at now, and if it is, until when
// it was none.
func tolerated(tolerations []resourcev1.DeviceToleration, taint Taint, now time.Time) (until time.Time, open bool) {
	if !blocks(taint.Effect) {
		return time.Time{}, true
	}
	seconds, ok := device.Toleration(tolerations, taint.Key, taint.Value, resourcev1.DeviceTaintEffect(taint.Effect))
	switch {
	case !ok:
		return time.Time{}, false
	case seconds == nil || taint.Effect != corev1.TaintEffectNoExecute:
		return time.Time{}, true
	}
	until, ends := device.Deadline(taint.TimeAdded, *seconds)
	return until, !ends || until.After(now)
}

// Live returns how many pods on nodes are neither over nor on their way out.
func (t *Tracker) Live() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.live
}

// Nodes returns the names, the labels and the taints of all nodes, by name. What it
// returns must not be written to.
func (t *Tracker) Nodes() []LabelledNode {
	t.mu.RLock()
	defer t.mu.RUnlock()
	nodes := make([]LabelledNode, 0, len(t.nodes))
	for name, state := range t.nodes {
		if state.known {
			nodes = append(nodes, LabelledNode{Name: name, Labels: state.Labels, Taints: state.taints, Written: state.Taints})
		}
	}
	slices.SortFunc(nodes, func(a, b LabelledNode) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// NodesVersion returns a number that differs from what it was when nodes have come or
// gone since, or have other labels or taints. When taints were added does not matter.
func (t *Tracker) NodesVersion() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.nodesVersion
}

// EachPod calls visit with every pod on a node, in no order and without the lock: pods
// that come and go meanwhile may be missed. They must not be written to.
func (t *Tracker) EachPod(visit func(*Pod)) {
	t.mu.RLock()
	names := make([]string, 0, len(t.nodes))
	for name := range t.nodes {
		names = append(names, name)
	}
	t.mu.RUnlock()
	var pods []*Pod
	for _, name := range names {
		pods = t.appendPodsOn(name, pods[:0])
		for _, pod := range pods {
			visit(pod)
		}
	}
}

func (t *Tracker) appendPodsOn(node string, pods []*Pod) []*Pod {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if state, ok := t.nodes[node]; ok {
		for pod := range state.pods {
			pods = append(pods, pod)
		}
	}
	return pods
}

// LabelledNode is what is known of a node that others than its pods ask for.
type LabelledNode struct {
	Name   string
	Labels Labels
	// Taints are those with effect NoExecute, and Written those of every effect as they
	// stand in the node.
	Taints  []Taint
	Written []corev1.Taint
}

// eachPublished calls visit for each device of the newest slices that is selected,
// as often as it is published.
func (t *Tracker) eachPublished(selector device.Selector, visit func(device.ID)) {
	for pool, p := range t.pools.Selected(selector) {
		for _, d := range p.devices() {
			if id := deviceIn(pool, d.Name); selector.Matches(id) {
				visit(id)
			}
		}
	}
}

func compareClaims(a, b ClaimName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// givesTo reports whether the claim gives its devices to a pod, by whichever of its
// references.
func (c *Claim) givesTo(pod *Pod, groups bool) bool {
	return slices.ContainsFunc(pod.Claims, func(ref PodClaim) bool {
		return ref.Name == c.Name && c.usableBy(pod, ref, groups)
	})
}
