package tracker

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// claimState is a claim that is known, used by pods, or both.
type claimState struct {
	// claim is nil while there is no such claim. It is replaced, never written to.
	claim *Claim
	// users are the pods that refer to the claim, in no order.
	users []*Pod
}

// SetClaim records a claim. One with another UID is another claim (DE-34).
func (t *Tracker) SetClaim(claim Claim) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.setClaim(t.claim(claim.ClaimName), claim)
}

func (t *Tracker) setClaim(state *claimState, claim Claim) []Key {
	old := state.claim
	if old != nil && Older(claim.ResourceVersion, old.ResourceVersion) {
		return nil
	}
	if old != nil && sameDevices(old, &claim) {
		state.claim = &claim
	} else {
		t.allocated.remove(state)
		state.claim = &claim
		t.allocated.add(state)
	}
	if old != nil && sameClaim(old, &claim) {
		return nil
	}
	if !t.evicts(old) && !t.evicts(&claim) {
		return nil
	}
	return state.keys()
}

// DeleteClaim forgets the claim of that name and UID; one that was created anew
// since stays. The pods that used it are left alone (DE-35).
func (t *Tracker) DeleteClaim(name ClaimName, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	state, ok := t.claims[name]
	if !ok || state.claim == nil || state.claim.UID != uid {
		return nil
	}
	old := state.claim
	t.allocated.remove(state)
	state.claim = nil
	t.pruneClaim(name)
	if !t.evicts(old) {
		return nil
	}
	return state.keys()
}

// evicts reports whether a device of claim, nil for none, has a NoExecute taint.
func (t *Tracker) evicts(claim *Claim) bool {
	if claim == nil || !claim.Allocated {
		return false
	}
	v := view{Tracker: t}
	return slices.ContainsFunc(claim.Devices, func(d AllocatedDevice) bool { return len(v.evicting(d.ID)) > 0 })
}

// claim returns the state of a claim, which is made if there is none.
func (t *Tracker) claim(name ClaimName) *claimState {
	state, ok := t.claims[name]
	if !ok {
		state = &claimState{}
		t.claims[name] = state
	}
	return state
}

func (t *Tracker) pruneClaim(name ClaimName) {
	if state := t.claims[name]; state != nil && state.claim == nil && len(state.users) == 0 {
		delete(t.claims, name)
	}
}

func (s *claimState) keys() []Key {
	keys := make([]Key, 0, len(s.users))
	for _, pod := range s.users {
		keys = append(keys, pod.Key)
	}
	return keys
}

// sameClaim reports whether both versions of a claim mean the same to its pods.
// The allocation is compared although it cannot change while it stands: what was
// taken back and given anew while the watch was away comes as one change (DE-33).
func sameClaim(a, b *Claim) bool {
	return a.UID == b.UID && a.Allocated == b.Allocated && sameController(a.Controller, b.Controller) &&
		slices.Equal(a.Consumers, b.Consumers) && sameWindow(a.Window, b.Window) &&
		slices.EqualFunc(a.Devices, b.Devices, func(x, y AllocatedDevice) bool {
			return x.ID == y.ID && slices.EqualFunc(x.Tolerations, y.Tolerations, sameDeviceToleration)
		})
}

// sameDevices reports whether both versions of a claim have the same devices.
func sameDevices(a, b *Claim) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y AllocatedDevice) bool { return x.ID == y.ID })
}

func sameController(a, b *metav1.OwnerReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion
}

func sameDeviceToleration(a, b resourcev1.DeviceToleration) bool {
	return a.Key == b.Key && a.Operator == b.Operator && a.Value == b.Value && a.Effect == b.Effect &&
		ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
}

// allocations finds claims by driver, pool and name of the devices allocated to
// them.
type allocations struct {
	device.Pools[map[string][]*claimState]
}

func (a allocations) add(state *claimState) {
	if state.claim == nil {
		return
	}
	for i := range state.claim.Devices {
		id := state.claim.Devices[i].ID
		devices, ok := a.Pools[id.Driver][id.Pool]
		if !ok {
			devices = map[string][]*claimState{}
			a.Set(id.Driver, id.Pool, devices)
		}
		if claims := devices[id.Name]; !slices.Contains(claims, state) {
			devices[id.Name] = append(claims, state)
		}
	}
}

func (a allocations) remove(state *claimState) {
	if state.claim == nil {
		return
	}
	for i := range state.claim.Devices {
		id := state.claim.Devices[i].ID
		devices := a.Pools[id.Driver][id.Pool]
		if claims := without(devices[id.Name], state); len(claims) > 0 {
			devices[id.Name] = claims
		} else {
			delete(devices, id.Name)
		}
		if len(devices) == 0 {
			a.Delete(id.Driver, id.Pool)
		}
	}
}

// on returns the claims that a device is allocated to.
func (a allocations) on(id device.ID) []*claimState {
	return a.Pools[id.Driver][id.Pool][id.Name]
}

// each calls visit for each claim that has a device that is selected, once or
// more.
func (a allocations) each(selector device.Selector, visit func(*claimState)) {
	each := func(claims []*claimState) {
		for _, state := range claims {
			visit(state)
		}
	}
	name, one := selector.Name()
	for _, devices := range a.Selected(selector) {
		if one {
			each(devices[name])
			continue
		}
		for _, claims := range devices {
			each(claims)
		}
	}
}

// child returns the map under key, which is made if there is none.
func child[K comparable, V any](parent map[string]map[K]V, key string) map[K]V {
	m, ok := parent[key]
	if !ok {
		m = map[K]V{}
		parent[key] = m
	}
	return m
}

// drop takes a key out of the map under a name, and that map if it is empty.
func drop[K comparable, V any](parent map[string]map[K]V, name string, key K) {
	delete(parent[name], key)
	if len(parent[name]) == 0 {
		delete(parent, name)
	}
}

// without takes an element out of a list whose order does not matter.
func without[T comparable](list []T, element T) []T {
	i := slices.Index(list, element)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i] = list[last]
	return slices.Delete(list, last, last+1)
}
