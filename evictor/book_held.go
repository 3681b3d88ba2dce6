package evictor

import (
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// heldPods are the pods of a book that are held. The lock of the book guards it.
type heldPods struct {
	pods map[tracker.Key]*heldPod
	// because has the same pods by the UIDs of the objects that carry their taints, and of the patches.
	because map[types.UID]map[tracker.Key]*heldPod
	// changed is true if the pods are others than when news was called last.
	changed bool
	// told are the episodes that an event told of.
	told map[episode]toldOf
}

// heldPod is what holds one pod: one hold for each of its reasons that are due, the earliest
// first. It does not change.
type heldPod struct {
	holds []hold
	since time.Time
}

// toldOf is an episode, and how many pods are held in it.
type toldOf struct {
	episode

	pods int
	// policy is the name of the policy that holds, taint one of the taints.
	policy, taint string
	// quiet is true if no event tells of it.
	quiet bool
}

func newHeldPods() heldPods {
	return heldPods{
		pods: map[tracker.Key]*heldPod{}, because: map[types.UID]map[tracker.Key]*heldPod{}, told: map[episode]toldOf{},
	}
}

// hold enters what holds a pod, which must not be empty.
func (b *book) hold(key tracker.Key, holds []hold, now time.Time) {
	b.update(func() []tracker.Source {
		e, ok := b.entries[key]
		if !ok {
			return nil
		}
		before, after := b.held.pods[key], &heldPod{holds: holds, since: now}
		if before != nil {
			after.since = before.since
		}
		b.held.set(key, after)
		if before != nil && slices.EqualFunc(before.holds, holds, sameHold) {
			return nil
		}
		return e.rules
	})
}

// sameHold reports whether two holds count in the same episodes. The author counts too: the
// controllers may adopt a rule for a ResourceSlicePatch that was made anew under its name.
func sameHold(a, b hold) bool {
	return a.episode(a.carrier) == b.episode(b.carrier) && a.author == b.author
}

// free records that a pod is not held any more: by nothing at all, or, with tried false,
// by nothing but what only an attempt can tell.
func (b *book) free(key tracker.Key, tried bool) {
	b.update(func() []tracker.Source {
		before, ok := b.held.pods[key]
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
		b.held.set(key, after)
		return b.entries[key].rules
	})
}

// tripped reports whether a breaker holds a pod.
func (b *book) tripped(key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.held.pods[key]
	return ok && slices.ContainsFunc(h.holds, func(h hold) bool { return h.Reason == checks.BreakerTripped })
}

// heldKeys returns the pods that a policy holds, all if its UID is empty.
func (b *book) heldKeys(policy types.UID) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []tracker.Key
	for key, h := range b.held.pods {
		if policy == "" || slices.ContainsFunc(h.holds, func(h hold) bool { return h.Policy == policy }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Held returns the pods that are held, each with what holds its earliest reason. It
// costs what is held, whatever else is pending.
func (e *Evictor) Held() []Held {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Held, 0, len(b.held.pods))
	for key, h := range b.held.pods {
		first := &h.holds[0]
		list = append(list, Held{
			Key: key, Carrier: first.author, Reason: first.Reason,
			Policy: first.Policy, PolicyName: first.PolicyName, Since: h.since,
		})
	}
	return list
}

// HeldByPolicy returns how many pods the breaker of each policy holds.
func (e *Evictor) HeldByPolicy() map[types.UID]int {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[types.UID]int{}
	for _, h := range b.held.pods {
		for i := range h.holds {
			reason, policy := h.holds[i].Reason, h.holds[i].Policy
			isSame := func(before hold) bool { return before.Reason == reason && before.Policy == policy }
			if reason == checks.BreakerTripped && !slices.ContainsFunc(h.holds[:i], isSame) {
				counts[policy]++
			}
		}
	}
	return counts
}

// HeldFor returns how many pods are held that have to leave because of the
// DeviceTaintRule or the ResourceSlicePatch with that UID, none if it is empty, and of what holds most of them the
// reason, as conditions have it, and why that is and what ends it. It costs what is held because of that one.
func (e *Evictor) HeldFor(rule types.UID) (pods int, reason, why string) {
	b := e.book
	b.mu.Lock()
	held := slices.Collect(maps.Values(b.held.because[rule]))
	b.mu.Unlock()
	var most toldOf
	for of, tally := range tallied(held) {
		if of.carrier.UID != rule {
			continue
		}
		pods += tally.pods
		if tally.pods > most.pods || (tally.pods == most.pods && of.reason < most.reason) {
			most = tally
		}
	}
	return pods, most.reason.Condition(), most.reason.Explain(most.policy)
}

// set records what holds a pod, nil for nothing.
func (h *heldPods) set(key tracker.Key, pod *heldPod) {
	if before := h.pods[key]; before != nil {
		delete(h.pods, key)
		for uid := range before.objects() {
			if delete(h.because[uid], key); len(h.because[uid]) == 0 {
				delete(h.because, uid)
			}
		}
	}
	h.changed = true
	if pod == nil {
		return
	}
	h.pods[key] = pod
	for uid := range pod.objects() {
		if h.because[uid] == nil {
			h.because[uid] = map[tracker.Key]*heldPod{}
		}
		h.because[uid][key] = pod
	}
}

// objects returns the UIDs of the objects that carry the taints, and of the patches, some more than once.
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

// clear drops all pods and all that events told of.
func (h *heldPods) clear() {
	clear(h.pods)
	clear(h.because)
	clear(h.told)
	h.changed = false
}

// tallied counts pods by what holds them. A pod with several reasons to leave counts for each.
func tallied(pods []*heldPod) map[episode]toldOf {
	tallies := map[episode]toldOf{}
	for _, pod := range pods {
		pod.eachEpisode(func(of episode, one *hold, quiet bool) {
			tally, ok := tallies[of]
			if !ok {
				tally = toldOf{episode: of, policy: one.PolicyName, taint: one.taint, quiet: quiet}
			}
			tally.pods++
			tallies[of] = tally
		})
	}
	return tallies
}

// eachEpisode visits what holds the pod: the episode of each of its reasons, and that of
// each patch among their authors, once. No event tells of a reason of a patch by
// itself: there may be one for each device.
func (h *heldPod) eachEpisode(visit func(of episode, one *hold, quiet bool)) {
	for i := range h.holds {
		one := &h.holds[i]
		written := one.author != one.carrier
		visit(one.episode(one.carrier), one, written)
		whole := one.episode(one.author)
		if written && !slices.ContainsFunc(h.holds[:i], func(before hold) bool { return before.episode(before.author) == whole }) {
			visit(whole, one, false)
		}
	}
}

// news returns the episodes that have begun since the last call, as far as may allows an event, and
// those that are over. An episode that is over before an event told of it is left out. Only one goroutine
// calls it.
func (b *book) news(may func() bool) (begun, over []toldOf) {
	b.mu.Lock()
	changed, pods := b.held.changed, []*heldPod(nil)
	if changed {
		pods = slices.Collect(maps.Values(b.held.pods))
	}
	b.held.changed = false
	b.mu.Unlock()
	if !changed {
		return nil, nil
	}
	tallies := tallied(pods)
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, said := range b.held.told {
		if _, lasts := tallies[of]; lasts {
			continue
		}
		delete(b.held.told, of)
		if may() {
			over = append(over, said)
		}
	}
	for of, tally := range tallies {
		if _, told := b.held.told[of]; told || tally.quiet {
			continue
		}
		if !may() {
			b.held.changed = true // It is told of later.
			continue
		}
		b.held.told[of] = tally
		begun = append(begun, tally)
	}
	return begun, over
}
