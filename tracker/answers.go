package tracker

import (
	"cmp"
	"iter"
	"maps"
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
	return t.actual().taints(id)
}

// ClaimsOn returns the claims that a device is allocated to, sorted.
func (t *Tracker) ClaimsOn(id device.ID) []ClaimName {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var names []ClaimName
	for _, state := range t.claimsOn(id) {
		names = append(names, state.claim.ClaimName)
	}
	slices.SortFunc(names, func(a, b ClaimName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return names
}

// PodsUsing returns the keys of the pods that use a device, sorted.
func (t *Tracker) PodsUsing(id device.ID) []Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	users := podSet{repeated: true}
	for _, state := range t.claimsOn(id) {
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
	return slices.Compact(slices.SortedFunc(t.selectedDevices(selector), device.Compare))
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
	var obstacles []Obstacle
	for _, d := range devices {
		for _, taint := range t.actual().taints(d.ID) {
			if until, open := tolerated(d.Tolerations, taint, now); !open {
				obstacles = append(obstacles, Obstacle{Device: d.ID, Taint: taint, Until: until})
			}
		}
	}
	return obstacles, true
}

// tolerated reports whether a taint is no obstacle at now, and if it is, until when
// it was none. A taint without effect NoExecute or NoSchedule keeps no claim from its
// device (TR-14).
func tolerated(tolerations []resourcev1.DeviceToleration, taint Taint, now time.Time) (until time.Time, open bool) {
	if taint.Effect != corev1.TaintEffectNoExecute && taint.Effect != corev1.TaintEffectNoSchedule {
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

// Nodes returns the names, the labels and the taints of all nodes, by name. They
// must not be written to.
func (t *Tracker) Nodes() []LabelledNode {
	t.mu.RLock()
	defer t.mu.RUnlock()
	nodes := make([]LabelledNode, 0, len(t.nodes))
	for name, state := range t.nodes {
		nodes = append(nodes, LabelledNode{Name: name, Labels: state.Labels, Taints: state.taints, Written: state.Taints})
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
	var names []string
	t.read(func() { names = slices.AppendSeq(make([]string, 0, len(t.onNode)), maps.Keys(t.onNode)) })
	var pods []*Pod
	for _, name := range names {
		t.read(func() { pods = slices.AppendSeq(pods[:0], maps.Keys(t.onNode[name])) })
		for _, pod := range pods {
			visit(pod)
		}
	}
}

// LabelledNode is the part of a node that others than its pods ask for.
type LabelledNode struct {
	Name   string
	Labels Labels
	// Taints are those with effect NoExecute, and Written those of every effect as they
	// stand in the node.
	Taints  []Taint
	Written []corev1.Taint
}

// selectedDevices yields each device of the newest slices that is selected, as often as it is
// published.
func (t *Tracker) selectedDevices(selector device.Selector) iter.Seq[device.ID] {
	return func(yield func(device.ID) bool) {
		for pool, p := range device.Selected(t.pools, selector) {
			for _, d := range p.devices() {
				if id := pool.Device(d.Name); selector.Matches(id) && !yield(id) {
					return
				}
			}
		}
	}
}

// givesTo reports whether the claim gives its devices to a pod, by whichever of its
// references.
func (c *Claim) givesTo(pod *Pod, groups bool) bool {
	return slices.ContainsFunc(pod.Claims, func(ref PodClaim) bool {
		return ref.Name == c.Name && c.usableBy(pod, ref, groups)
	})
}
