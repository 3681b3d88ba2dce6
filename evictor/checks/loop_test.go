package checks

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// taintOf returns a taint that stands since noon.
func taintOf(kind tracker.SourceKind, name string) *tracker.Taint {
	return &tracker.Taint{
		Key: "k", Effect: corev1.TaintEffectNoExecute, TimeAdded: noon, Seen: noon, Stamped: true,
		Source: tracker.Source{Kind: kind, Name: name},
	}
}

// podOf returns a pod of a controller that came at a time, which is known to the second.
func podOf(owner string, bound time.Time) *tracker.Pod {
	return &tracker.Pod{
		Key: tracker.Key{Namespace: "ns", Name: "p", UID: "u"}, Bound: bound.Truncate(time.Second),
		Origin: &tracker.Origin{OwnerKind: "ReplicaSet", OwnerUID: types.UID(owner)},
	}
}

// bounce has a pod come after a delay, wait as long as it is held, and be evicted, for
// so many rounds. It returns when each was evicted, and in which round a loop was found.
func bounce(w *Loops, owner string, comes time.Duration, rounds int) (went []time.Time, found []int) {
	now := noon
	taint := taintOf(tracker.SourceNode, "n")
	for round := range rounds {
		pod := podOf(owner, now.Add(comes))
		now = now.Add(comes)
		if until, held := w.Hold(now, pod, taint); held {
			now = until
		}
		if _, news := w.Evicted(now, pod, taint); news {
			found = append(found, round+1)
		}
		went = append(went, now)
	}
	return went, found
}

func gaps(went []time.Time) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(went); i++ {
		gaps = append(gaps, went[i].Sub(went[i-1]))
	}
	return gaps
}

func TestJ12PodsThatComeBackAreSlowedDown(t *testing.T) {
	t.Parallel()
	const s = time.Second

	t.Run("the fourth within ten minutes waits for 10 seconds, then it doubles up to 5 minutes", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		went, found := bounce(w, "rs", 2*s, 12)
		require.Equal(t, []time.Duration{2 * s, 2 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s, 300 * s}, gaps(went))
		require.Equal(t, []int{4}, found, "said once")
		late := went[11].Add(quiet)
		_, held := w.Hold(went[11].Add(2*s), podOf("rs", went[11].Add(2*s)), taintOf(tracker.SourceNode, "n"))
		require.True(t, held)
		_, held = w.Hold(late.Add(s), podOf("rs", late.Add(s)), taintOf(tracker.SourceNode, "n"))
		require.False(t, held)
	})

	t.Run("a hundred rounds later it is still 5 minutes", func(t *testing.T) {
		t.Parallel()
		went, _ := bounce(NewLoops(), "rs", 2*s, 100)
		require.Equal(t, longestWait, gaps(went)[98])
	})

	t.Run("who comes back rarely does not wait", func(t *testing.T) {
		t.Parallel()
		went, found := bounce(NewLoops(), "rs", 201*s, 20)
		require.Empty(t, found)
		for _, gap := range gaps(went) {
			require.Equal(t, 201*s, gap)
		}
	})

	t.Run("a loop says what it is", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		went, _ := bounce(w, "rs", 2*s, 4)
		back, taint := went[3].Add(2*s), taintOf(tracker.SourceNode, "n")
		until, held := w.Hold(back, podOf("rs", back), taint)
		require.True(t, held)
		require.Equal(t, went[3].Add(20*s), until)
		loop, _ := w.Evicted(until, podOf("rs", back), taint)
		require.Equal(t, "pods of a ReplicaSet come back to be evicted again: 5 pods in 4 rounds since 2026-03-01T12:00:02Z", loop)
		require.Contains(t, (&loopHistory{pods: 1}).String(), ": 1 pod in")
	})

	t.Run("after half an hour without an eviction all is forgotten", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		went, _ := bounce(w, "rs", 2*s, 8)
		late := went[7].Add(quiet + s)
		_, held := w.Hold(late, podOf("rs", late.Add(-s)), taintOf(tracker.SourceNode, "n"))
		require.False(t, held)
	})
}

func TestJ12WhatIsNoLoop(t *testing.T) {
	t.Parallel()
	const s = time.Second
	node := taintOf(tracker.SourceNode, "n")

	t.Run("pods that were there before the taint", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		for i := range 100 {
			_, held := w.Hold(after(s), podOf("rs", after(-time.Hour)), node)
			require.False(t, held, i)
			_, found := w.Evicted(after(s), podOf("rs", after(-time.Hour)), node)
			require.False(t, found)
		}
		require.Zero(t, w.known.Len())
	})

	t.Run("many replicas that are evicted once each", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		for i := range 100 {
			now := after(time.Duration(60+i) * s)
			pod := podOf("rs", after(time.Duration(1+i/10)*s))
			_, held := w.Hold(now, pod, node)
			require.False(t, held)
			_, found := w.Evicted(now, pod, node)
			require.False(t, found)
		}
		_, held := w.Hold(after(200*s), podOf("rs", after(200*s)), node)
		require.False(t, held)
	})

	t.Run("but if all of them come back again and again, all of a round go together", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		now := noon
		for round := range 6 {
			now = now.Add(5 * s)
			pod := podOf("rs", now)
			for range 50 {
				if until, held := w.Hold(now, pod, node); held {
					require.GreaterOrEqual(t, round, freeRounds)
					now = until
				}
				w.Evicted(now, pod, node)
			}
		}
		require.Equal(t, after((5+5+5+10+20+40)*s), now)
	})

	t.Run("pods without a controller", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		_, found := bounce(w, "", 2*s, 20)
		require.Empty(t, found)
		_, news := w.Evicted(after(s), &tracker.Pod{Bound: after(s)}, node)
		require.False(t, news)
		require.Zero(t, w.known.Len())
	})

	for name, other := range map[string]struct {
		owner string
		taint *tracker.Taint
		same  bool
	}{
		"pods of another controller":          {"other", taintOf(tracker.SourceNode, "n"), false},
		"another key":                         {"rs", func() *tracker.Taint { t := taintOf(tracker.SourceNode, "n"); t.Key = "l"; return t }(), false},
		"a rule":                              {"rs", taintOf(tracker.SourceRule, "n"), false},
		"the same key on another node is one": {"rs", taintOf(tracker.SourceNode, "m"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewLoops()
			went, _ := bounce(w, "rs", 2*s, 6)
			now := went[5].Add(2 * s)
			_, held := w.Hold(now, podOf(other.owner, now), other.taint)
			require.Equal(t, other.same, held)
		})
	}

	t.Run("a rule that was created anew", func(t *testing.T) {
		t.Parallel()
		w := NewLoops()
		for i := range 6 {
			rule := taintOf(tracker.SourceRule, "r")
			rule.Source.UID = types.UID(strconv.Itoa(i))
			now := after(time.Duration(i+1) * s)
			_, held := w.Hold(now, podOf("rs", now), rule)
			require.False(t, held)
			w.Evicted(now, podOf("rs", now), rule)
		}
		require.Equal(t, 6, w.known.Len())
	})
}

func TestJ12MemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := NewLoops()
	for i := range mostKnown + 100 {
		bounce(w, strconv.Itoa(i), time.Second, 1)
		if i%1000 == 0 {
			bounce(w, "known", time.Second, 1)
		}
	}
	require.Equal(t, mostKnown, w.known.Len())
	pod, taint := podOf("known", after(2*time.Second)), taintOf(tracker.SourceNode, "n")
	found := func(owner string) bool {
		pod.Origin.OwnerUID = types.UID(owner)
		key, _ := loopKeyOf(pod, taint)
		_, known := w.known.Get(key)
		return known
	}
	require.True(t, found("known"), "the pods that were not evicted for longest are forgotten first")
	require.False(t, found("0"))
}

func TestH05AClockThatIsSetBackHoldsNobodyLonger(t *testing.T) {
	t.Parallel()
	w := NewLoops()
	went, _ := bounce(w, "rs", 2*time.Second, 6)
	back := went[5].Add(-time.Hour)
	taint := taintOf(tracker.SourceNode, "n")
	taint.TimeAdded = back.Add(-time.Minute)
	pod := podOf("rs", back.Add(2*time.Second))
	until, held := w.Hold(back, pod, taint)
	require.True(t, held)
	require.Equal(t, back.Add(80*time.Second), until)
	again, held := w.Hold(back.Add(time.Second), pod, taint)
	require.True(t, held)
	require.Equal(t, until, again, "it does not move")
	_, held = w.Hold(until, pod, taint)
	require.False(t, held)
}

// TestJ12HowOftenPodsComeBackIsBounded has pods of some controllers come back at random
// and counts, in the plainest way, how many rounds went within a time.
func TestJ12HowOftenPodsComeBackIsBounded(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, seed))
	waited := 0
	for range 200 {
		w, now := NewLoops(), noon
		taint := taintOf(tracker.SourceNode, "n")
		var went []time.Time
		fastest := time.Duration(1+r.IntN(30)) * time.Second
		for now.Before(after(time.Hour)) {
			now = now.Add(fastest + time.Duration(r.IntN(3000))*time.Millisecond)
			pod := podOf("rs", now)
			if until, held := w.Hold(now, pod, taint); held {
				require.LessOrEqual(t, until.Sub(now), longestWait, "seed %d", seed)
				_, still := w.Hold(until.Add(-1), pod, taint)
				require.True(t, still, "seed %d", seed)
				now = until
				waited++
			}
			_, held := w.Hold(now, pod, taint)
			require.False(t, held, "seed %d: nobody waits twice", seed)
			w.Evicted(now, pod, taint)
			went = append(went, now)
		}
		require.LessOrEqual(t, len(went), freeRounds+6+60/5+2, "seed %d", seed)
	}
	require.Greater(t, waited, 1000)
}

func TestWatchIsSafeForManyWorkers(t *testing.T) {
	t.Parallel()
	w := NewLoops()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 100 {
				now := after(time.Duration(i) * time.Second)
				pod := podOf(strconv.Itoa(worker%3), now)
				w.Hold(now, pod, taintOf(tracker.SourceNode, "n"))
				w.Evicted(now, pod, taintOf(tracker.SourceNode, "n"))
			}
		})
	}
	wg.Wait()
	require.Equal(t, 3, w.known.Len())
}
