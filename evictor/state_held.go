package evictor

import (
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// heldPods are the held pods of a state, whose lock guards them.
type heldPods struct {
	pods map[tracker.Key]*heldPod
	// because has the same pods by the UIDs of the objects that carry their taints, and of the
	// ResourceSlicePatches.
	because device.Table[types.UID, tracker.Key, *heldPod]
	// changed is true if pods have changed since the last call of groupChanges.
	changed bool
	// announced are the groups that were reported in an event.
	announced map[holdKey]heldGroup
}

// heldPod has the holds of one pod: one for each reason that is due, the earliest first. It is
// immutable.
type heldPod struct {
	holds []hold
	since time.Time
}

// heldGroup are the held pods with one key.
type heldGroup struct {
	holdKey

	pods int
	// policy is the name of the policy that holds them, and taint one of the taints.
	policy, taint string
	// quiet is true if no event reports the group.
	quiet bool
}

func newHeldPods() heldPods {
	return heldPods{
		pods: map[tracker.Key]*heldPod{}, because: device.Table[types.UID, tracker.Key, *heldPod]{}, announced: map[holdKey]heldGroup{},
	}
}

// hold records the holds of a pod whose eviction is pending, at least one.
func (s *state) hold(key tracker.Key, holds []hold, now time.Time) {
	s.update(func() []tracker.Source {
		e := s.pending[key]
		before, after := s.held.pods[key], &heldPod{holds: holds, since: now}
		if before == nil {
			s.held.set(key, after)
			return e.rules
		}
		after.since = before.since
		// Paused reasons keep the breakers that held them: these hold the pod again when the pause ends,
		// and would be released meanwhile if they did not count it.
		for i := range holds {
			paused := &holds[i]
			at := slices.IndexFunc(before.holds, func(was hold) bool { return was.carrier == paused.carrier && was.taint == paused.taint })
			if at >= 0 && paused.Reason == checks.Paused {
				paused.Breakers = before.holds[at].Breakers
			}
		}
		s.held.set(key, after)
		// The author is compared too: a rule may get another ResourceSlicePatch as its author, when that is
		// recreated under its name.
		if slices.EqualFunc(before.holds, holds, func(a, b hold) bool { return a.key(a.carrier) == b.key(b.carrier) && a.author == b.author }) {
			return nil
		}
		return e.rules
	})
}

// free removes the holds of a pod: all of them or, with tried false, those that are found
// without a request.
func (s *state) free(key tracker.Key, tried bool) {
	s.update(func() []tracker.Source {
		before, ok := s.held.pods[key]
		if !ok {
			return nil
		}
		after := &heldPod{since: before.since}
		for i := range before.holds {
			if !tried && before.holds[i].Reason.FoundByRequest() {
				after.holds = append(after.holds, before.holds[i])
			}
		}
		switch len(after.holds) {
		case len(before.holds):
			return nil
		case 0:
			after = nil
		}
		s.held.set(key, after)
		return s.pending[key].rules
	})
}

// tripped reports whether a breaker holds a pod.
func (s *state) tripped(key tracker.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held.pods[key]
	return ok && slices.ContainsFunc(h.holds, func(h hold) bool { return h.Reason == checks.BreakerTripped })
}

// heldKeys returns the pods that a policy holds, all held pods if the UID is empty.
func (s *state) heldKeys(policy types.UID) []tracker.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []tracker.Key
	for key, h := range s.held.pods {
		if policy == "" || slices.ContainsFunc(h.holds, func(h hold) bool { return h.Policy == policy }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Held returns the held pods, each with the hold of its earliest reason. Its cost grows with the
// number of held pods alone.
func (e *Evictor) Held() []Held {
	s := e.state
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Held, 0, len(s.held.pods))
	for key, h := range s.held.pods {
		first := &h.holds[0]
		list = append(list, Held{
			Key: key, Carrier: first.author, Reason: first.Reason,
			Policy: first.Policy, PolicyName: first.PolicyName, Since: h.since,
		})
	}
	return list
}

// HeldByPolicy returns the number of pods that breakers hold, or held before their policy was
// paused, by the UID of each policy whose breaker needs room for them.
func (e *Evictor) HeldByPolicy() map[types.UID]int {
	s := e.state
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[types.UID]int{}
	for _, h := range s.held.pods {
		breakers := sets.Set[types.UID]{}
		for i := range h.holds {
			breakers.Insert(h.holds[i].Breakers...)
		}
		for policy := range breakers {
			counts[policy]++
		}
	}
	return counts
}

// HeldFor returns the number of held pods that have to leave because of the DeviceTaintRule or
// the ResourceSlicePatch with the UID, none if it is empty. For the hold of most of them it
// returns the reason, as in conditions, and an explanation that says what ends the hold. Its cost
// grows with the number of these pods alone.
func (e *Evictor) HeldFor(rule types.UID) (pods int, reason, why string) {
	s := e.state
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held.because[rule]))
	s.mu.Unlock()
	var most heldGroup
	for of, group := range groupsOf(held) {
		if of.carrier.UID != rule {
			continue
		}
		pods += group.pods
		if group.pods > most.pods || (group.pods == most.pods && of.reason < most.reason) {
			most = group
		}
	}
	return pods, most.reason.Condition(), most.reason.Explain(most.policy)
}

// set sets the holds of a pod; nil removes it.
func (h *heldPods) set(key tracker.Key, pod *heldPod) {
	if before := h.pods[key]; before != nil {
		delete(h.pods, key)
		for uid := range before.objects() {
			h.because.Delete(uid, key)
		}
	}
	h.changed = true
	if pod == nil {
		return
	}
	h.pods[key] = pod
	for uid := range pod.objects() {
		h.because.Set(uid, key, pod)
	}
}

// objects returns the UIDs of the objects that carry the taints and of the ResourceSlicePatches,
// with repetitions.
func (h *heldPod) objects() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		for i := range h.holds {
			for _, uid := range []types.UID{h.holds[i].carrier.UID, h.holds[i].author.UID} {
				if uid != "" && !yield(uid) {
					return
				}
			}
		}
	}
}

// groupsOf groups pods by their holds. A pod counts once for each reason, and once for each
// ResourceSlicePatch among the authors. The groups of the rules of a patch are quiet, because there may
// be a rule for each device.
func groupsOf(pods []*heldPod) map[holdKey]heldGroup {
	groups := map[holdKey]heldGroup{}
	add := func(of holdKey, one *hold, quiet bool) {
		group, ok := groups[of]
		if !ok {
			group = heldGroup{holdKey: of, policy: one.PolicyName, taint: one.taint, quiet: quiet}
		}
		group.pods++
		groups[of] = group
	}
	for _, pod := range pods {
		for i := range pod.holds {
			one := &pod.holds[i]
			written, whole := one.author != one.carrier, one.key(one.author)
			add(one.key(one.carrier), one, written)
			if written && !slices.ContainsFunc(pod.holds[:i], func(before hold) bool { return before.key(before.author) == whole }) {
				add(whole, one, false)
			}
		}
	}
	return groups
}

// groupChanges returns the groups that have appeared since the last call, and the announced ones
// that have gone, as far as may permits an event. Only one goroutine may call it.
func (s *state) groupChanges(may func() bool) (begun, over []heldGroup) {
	s.mu.Lock()
	changed, pods := s.held.changed, []*heldPod(nil)
	if changed {
		pods = slices.Collect(maps.Values(s.held.pods))
	}
	s.held.changed = false
	s.mu.Unlock()
	if !changed {
		return nil, nil
	}
	groups := groupsOf(pods)
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, said := range s.held.announced {
		if _, lasts := groups[of]; lasts {
			continue
		}
		delete(s.held.announced, of)
		if may() {
			over = append(over, said)
		}
	}
	for of, group := range groups {
		if _, announced := s.held.announced[of]; announced || group.quiet {
			continue
		}
		if !may() {
			s.held.changed = true // It is announced later.
			continue
		}
		s.held.announced[of] = group
		begun = append(begun, group)
	}
	return begun, over
}
