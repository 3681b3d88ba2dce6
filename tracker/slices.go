package tracker

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// SetSlice records a ResourceSlice as it was seen at now.
func (t *Tracker) SetSlice(slice Slice, now time.Time) []Key {
	return t.setSlice(slice, nil, now)
}

// RefreshSlice records a slice that the API server returned to a request of our
// own. Like RefreshNode, it changes nothing unless that very slice is known.
func (t *Tracker) RefreshSlice(slice Slice, before string, now time.Time) []Key {
	return t.setSlice(slice, &before, now)
}

// setSlice records a slice, see overtaken for before.
func (t *Tracker) setSlice(slice Slice, before *string, now time.Time) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overtaken(SourceSlice, slice.Identity(), before) {
		return nil
	}
	old := t.slices[slice.Name]
	slice.seen = now
	var users podSet
	if old != nil && old.poolID() != slice.poolID() {
		t.changePool(old, nil, &users)
		old = nil
	}
	t.slices[slice.Name] = &slice
	t.changePool(old, &slice, &users)
	return users.keys()
}

// DeleteSlice forgets the slice of that name and UID; one that was created anew
// since stays.
func (t *Tracker) DeleteSlice(name string, uid types.UID) []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.slices[name]
	if old == nil || old.UID != uid {
		return nil
	}
	var users podSet
	delete(t.slices, name)
	t.changePool(old, nil, &users)
	return users.keys()
}

// changePool puts slice in the place of old, either of them nil for none, and adds
// the pods on devices that are changed by that to users.
func (t *Tracker) changePool(old, slice *Slice, users *podSet) {
	id := cmp.Or(old, slice).poolID()
	p, ok := t.pools[id.Driver][id.Pool]
	if !ok {
		p = newPool()
		t.pools.Set(id.Driver, id.Pool, p)
	}
	for _, changed := range p.replace(old, slice) {
		t.addDevice(users, id.Device(changed))
	}
	if len(p.generations) == 0 {
		t.pools.Delete(id.Driver, id.Pool)
	}
}

// podSet is a set of pods.
type podSet struct {
	pods []*Pod
	// repeated is true when a pod may be in there twice: because it has several claims
	// or a claim on several devices, or because claims were looked for twice.
	repeated bool
}

// addUsers adds the pods that refer to a claim.
func (s *podSet) addUsers(state *claimState) {
	s.repeated = s.repeated || len(state.claim.Devices) > 1
	for _, pod := range state.users {
		s.repeated = s.repeated || len(pod.Claims) > 1
		s.pods = append(s.pods, pod)
	}
}

// all returns the pods, each once.
func (s *podSet) all() []*Pod {
	if !s.repeated {
		return s.pods
	}
	seen := make(map[*Pod]struct{}, len(s.pods))
	return slices.DeleteFunc(s.pods, func(pod *Pod) bool {
		_, twice := seen[pod]
		seen[pod] = struct{}{}
		return twice
	})
}

func (s *podSet) keys() []Key { return keysOf(s.all()) }

// addDevice adds the pods that refer to a claim with that device.
func (t *Tracker) addDevice(users *podSet, id device.ID) {
	users.repeated = true
	for _, state := range t.claimsOn(id) {
		users.addUsers(state)
	}
}
