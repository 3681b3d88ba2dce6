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
	state := t.claim(claim.ClaimName)
	old := state.claim
	if old != nil && Older(claim.ResourceVersion, old.ResourceVersion) {
		return nil
	}
	if old != nil && sameDevices(old, &claim) {
		state.claim = &claim
	} else {
		t.release(state)
		state.claim = &claim
		t.allocate(state)
	}
	if (old != nil && sameClaim(old, &claim)) || (!t.evicts(old) && !t.evicts(&claim)) {
		return nil
	}
	return keysOf(state.users)
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
	t.release(state)
	state.claim = nil
	t.pruneClaim(name)
	if !t.evicts(old) {
		return nil
	}
	return keysOf(state.users)
}

// evicts reports whether a device of claim, nil for none, has a NoExecute taint.
func (t *Tracker) evicts(claim *Claim) bool {
	if claim == nil || !claim.Allocated {
		return false
	}
	return slices.ContainsFunc(claim.Devices, func(d AllocatedDevice) bool { return len(t.actual().evicting(d.ID)) > 0 })
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

func keysOf(pods []*Pod) []Key {
	keys := make([]Key, 0, len(pods))
	for _, pod := range pods {
		keys = append(keys, pod.Key)
	}
	return keys
}

// sameClaim reports whether both versions of a claim mean the same to its pods.
// The allocation is compared although it cannot change while it stands: an allocation
// that is taken back and made anew while the watch is away comes as one change (DE-33).
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

// allocate makes the devices of a claim find it.
func (t *Tracker) allocate(state *claimState) {
	for _, d := range state.claim.Devices {
		id := d.ID
		devices, ok := t.allocated[id.Driver][id.Pool]
		if !ok {
			devices = map[string][]*claimState{}
			t.allocated.Set(id.Driver, id.Pool, devices)
		}
		if claims := devices[id.Name]; !slices.Contains(claims, state) {
			devices[id.Name] = append(claims, state)
		}
	}
}

// release reverts allocate, if there is a claim.
func (t *Tracker) release(state *claimState) {
	if state.claim == nil {
		return
	}
	for _, d := range state.claim.Devices {
		id := d.ID
		devices := t.allocated[id.Driver][id.Pool]
		if claims := without(devices[id.Name], state); len(claims) > 0 {
			devices[id.Name] = claims
		} else {
			delete(devices, id.Name)
		}
		if len(devices) == 0 {
			t.allocated.Delete(id.Driver, id.Pool)
		}
	}
}

// claimsOn returns the claims that a device is allocated to.
func (t *Tracker) claimsOn(id device.ID) []*claimState {
	return t.allocated[id.Driver][id.Pool][id.Name]
}

// eachAllocated calls visit for each claim that has a device that is selected, once or
// more.
func (t *Tracker) eachAllocated(selector device.Selector, visit func(*claimState)) {
	each := func(claims []*claimState) {
		for _, state := range claims {
			visit(state)
		}
	}
	name, one := selector.Name()
	for _, devices := range device.Selected(t.allocated, selector) {
		if one {
			each(devices[name])
			continue
		}
		for _, claims := range devices {
			each(claims)
		}
	}
}

// without takes an element out of a list.
func without[T comparable](list []T, element T) []T {
	if i := slices.Index(list, element); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
