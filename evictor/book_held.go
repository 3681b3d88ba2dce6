package evictor

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// heldPods is what holds the pods of a book. It is guarded by the lock of the book.
type heldPods struct {
	metrics *Metrics
	// pods are those that are held.
	pods map[tracker.Key]*heldPod
	// episodes counts pods by what holds them. One with several reasons to leave counts
	// for each.
	episodes map[episode]*tallyHeld
}

// heldPod is what holds one pod: for each of its reasons that are due one hold, the
// earliest first.
type heldPod struct {
	holds []hold
	since time.Time
	// counted is the kind of object that the gauge counts the pod for.
	counted tracker.SourceKind
}

// tallyHeld is how many pods are held in an episode, and what is said of it.
type tallyHeld struct {
	pods int
	// policy is the name of the policy that holds, taint one of the taints.
	policy, taint string
	// told is true once an event told of the episode, and quiet if none ever does.
	told, quiet bool
}

func newHeldPods(metrics *Metrics) heldPods {
	return heldPods{metrics: metrics, pods: map[tracker.Key]*heldPod{}, episodes: map[episode]*tallyHeld{}}
}

// hold enters what holds a pod, which must not be empty, and reports whether the rules
// of the eviction have news.
func (b *book) hold(key tracker.Key, holds []hold, now time.Time) {
	if rules := b.enterHold(key, holds, now); len(rules) > 0 {
		b.changed(rules)
	}
}

// enterHold is hold, and returns the rules to tell of.
func (b *book) enterHold(key tracker.Key, holds []hold, now time.Time) []tracker.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok {
		return nil
	}
	before := b.held.pods[key]
	if before != nil && slices.EqualFunc(before.holds, holds, sameHold) {
		before.holds = holds
		return nil
	}
	after := &heldPod{holds: holds, since: now, counted: e.source}
	if before != nil {
		after.since = before.since
	}
	b.held.remove(key)
	b.held.add(key, after)
	return e.rules
}

// sameHold reports whether two holds count in the same episodes. The author counts too: the
// controllers may adopt a rule for a ResourceSlicePatch that was made anew under its name.
func sameHold(a, b hold) bool { return a.episode == b.episode && a.author == b.author }

// free says that a pod is not held any more: by nothing at all, or, with tried false,
// by nothing but what only an attempt can tell.
func (b *book) free(key tracker.Key, tried bool) {
	if rules := b.enterFree(key, tried); len(rules) > 0 {
		b.changed(rules)
	}
}

// enterFree is free, and returns the rules to tell of.
func (b *book) enterFree(key tracker.Key, tried bool) []tracker.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.held.pods[key]
	if !ok || (!tried && slices.ContainsFunc(h.holds, func(h hold) bool { return h.reason.foundByTrying() })) {
		return nil
	}
	b.held.remove(key)
	if e := b.entries[key]; e != nil {
		return e.rules
	}
	return nil
}

// tripped reports whether a breaker holds a pod.
func (b *book) tripped(key tracker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := b.held.pods[key]
	return ok && slices.ContainsFunc(h.holds, func(h hold) bool { return h.reason == HoldBreakerTripped })
}

// heldKeys returns the pods that a policy holds, all if its UID is empty.
func (b *book) heldKeys(policy types.UID) []tracker.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []tracker.Key
	for key, h := range b.held.pods {
		if policy == "" || slices.ContainsFunc(h.holds, func(h hold) bool { return h.episode.policy == policy }) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (b *book) allHeld() []Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Held, 0, len(b.held.pods))
	for key, h := range b.held.pods {
		first := &h.holds[0]
		list = append(list, Held{
			Key: key, Carrier: first.author, Reason: first.reason,
			Policy: first.episode.policy, PolicyName: first.policy, Since: h.since,
		})
	}
	return list
}

func (b *book) heldByBreaker() map[types.UID]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[types.UID]int{}
	for _, h := range b.held.pods {
		h.eachBreaker(func(policy types.UID) { counts[policy]++ })
	}
	return counts
}

// eachBreaker visits each policy whose breaker holds the pod, once.
func (h *heldPod) eachBreaker(visit func(types.UID)) {
	for i := range h.holds {
		of := h.holds[i].episode
		if of.reason != HoldBreakerTripped {
			continue
		}
		if !slices.ContainsFunc(h.holds[:i], func(h hold) bool { return h.reason == of.reason && h.episode.policy == of.policy }) {
			visit(of.policy)
		}
	}
}

// heldFor returns how many pods are held because of a rule or a patch, and what holds
// most of them.
func (b *book) heldFor(rule types.UID) (pods int, most toldOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, t := range b.held.episodes {
		if rule == "" || of.carrier.UID != rule || t.pods == 0 {
			continue
		}
		pods += t.pods
		if t.pods > most.pods || (t.pods == most.pods && of.reason < most.reason) {
			most = toldOf{episode: of, pods: t.pods, policy: t.policy, taint: t.taint}
		}
	}
	return pods, most
}

func (h *heldPods) add(key tracker.Key, pod *heldPod) {
	h.pods[key] = pod
	h.metrics.held.WithLabelValues(string(pod.counted), string(pod.holds[0].reason)).Inc()
	pod.eachEpisode(func(of episode, one *hold, quiet bool) {
		t := h.episodes[of]
		if t == nil {
			t = &tallyHeld{policy: one.policy, taint: one.taint, quiet: quiet}
			h.episodes[of] = t
		}
		t.pods++
	})
}

// eachEpisode visits what holds the pod: the episode of each of its reasons, and that of
// each patch among their authors, once. A reason that is a patch's is not told of by
// itself: there may be one for each device.
func (h *heldPod) eachEpisode(visit func(of episode, one *hold, quiet bool)) {
	for i := range h.holds {
		one := &h.holds[i]
		written := one.author != one.carrier
		visit(one.episode, one, written)
		if written && !slices.ContainsFunc(h.holds[:i], func(before hold) bool { return before.whole() == one.whole() }) {
			visit(one.whole(), one, false)
		}
	}
}

func (h *heldPods) remove(key tracker.Key) {
	pod, ok := h.pods[key]
	if !ok {
		return
	}
	delete(h.pods, key)
	h.metrics.held.WithLabelValues(string(pod.counted), string(pod.holds[0].reason)).Dec()
	pod.eachEpisode(func(of episode, _ *hold, _ bool) { h.episodes[of].pods-- })
}

// clear takes out all pods and all that was to be told of.
func (h *heldPods) clear() {
	for key := range h.pods {
		h.remove(key)
	}
	clear(h.episodes)
}

// toldOf is an episode that has begun or is over.
type toldOf struct {
	episode

	pods          int
	policy, taint string
}

// news returns the episodes that have begun and were not told of, as far as may lets
// them, and those that are over. One that is over before it was told of is none.
func (b *book) news(may func() bool) (begun, over []toldOf) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, t := range b.held.episodes {
		switch said := (toldOf{episode: of, pods: t.pods, policy: t.policy, taint: t.taint}); {
		case t.pods == 0:
			delete(b.held.episodes, of)
			if t.told && may() {
				over = append(over, said)
			}
		case !t.told && !t.quiet && may():
			t.told = true
			begun = append(begun, said)
		}
	}
	return begun, over
}
