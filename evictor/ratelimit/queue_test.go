package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

func always(limits ...Limit) func(tracker.Key) []Limit {
	return func(tracker.Key) []Limit { return limits }
}

func TestPodsLeaveInTheirOrder(t *testing.T) {
	t.Parallel()

	t.Run("as many as the burst at once, then one after the other", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 10, 3)
		for i, name := range pods("p", 8) {
			require.Equal(t, i < 3, goes(q, noon, name, a), name)
		}
		require.Equal(t, 5, q.Len())
		went := drain(t, q, noon, always(a))
		for i, name := range pods("p", 8)[3:] {
			require.Equal(t, after(time.Duration(i+1)*100*time.Millisecond), went[name], name)
		}
	})

	t.Run("who comes when others wait does not go before them", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		require.False(t, goes(q, noon, "second", a))
		require.False(t, goes(q, after(time.Second), "third", a))
		require.True(t, goes(q, after(time.Second), "second", a))
	})

	t.Run("asking again changes nothing", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		for range 3 {
			require.False(t, goes(q, noon, "second", a))
			require.False(t, goes(q, noon, "third", a))
		}
		require.Equal(t, 2, q.Len())
		went := drain(t, q, noon, always(a))
		require.Equal(t, []time.Time{after(time.Second), after(2 * time.Second)}, []time.Time{went["second"], went["third"]})
	})

	t.Run("without a limit a pod goes at once, also one that has waited", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		require.False(t, goes(q, noon, "second", a))
		require.True(t, goes(q, noon, "second"))
		require.True(t, goes(q, noon, "third"))
		require.Zero(t, q.Len())
	})

	t.Run("a pod that leaves costs nothing, waiting or called", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		for _, name := range pods("p", 4) {
			require.False(t, goes(q, noon, name, a))
		}
		q.Leave(noon, key("p0"), false)
		q.Leave(noon, key("nobody"), false)
		called, _ := q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p1")}, called)
		q.Leave(after(time.Second), key("p1"), false)
		called, _ = q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p2")}, called, "in the same moment")
		require.True(t, goes(q, after(time.Second), "p2", a))
	})

	t.Run("who is called and does not come has lost its place, and nobody waits for it", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		require.False(t, goes(q, noon, "gone", a))
		require.False(t, goes(q, noon, "next", a))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("gone")}, called)
		called, in := q.Next(after(2 * time.Second))
		require.Empty(t, called, "nobody is called twice")
		require.Positive(t, in)
		require.LessOrEqual(t, in, answersWithin)
		require.False(t, goes(q, after(3*time.Second), "next", a), "the token is kept for a while")
		called, _ = q.Next(after(6 * time.Second))
		require.Equal(t, []tracker.Key{key("next")}, called)
		require.False(t, goes(q, after(6*time.Second), "gone", a), "it is the last now")
		require.True(t, goes(q, after(6*time.Second), "next", a))
		require.True(t, goes(q, after(7*time.Second), "gone", a))
	})

	t.Run("a pod that asks too late has lost its place, too", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		require.False(t, goes(q, noon, "late", a))
		require.False(t, goes(q, noon, "next", a))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("late")}, called)
		require.False(t, goes(q, after(time.Minute), "late", a))
		called, _ = q.Next(after(time.Minute))
		require.Equal(t, []tracker.Key{key("next")}, called)
	})

	t.Run("a pod that arrives at an empty queue wakes Run", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		_, in := q.Next(noon)
		require.Zero(t, in)
		require.False(t, goes(q, noon, "second", a))
		require.Len(t, q.changed, 1)
		_, in = q.Next(noon)
		require.Equal(t, time.Second, in)
	})

	t.Run("the next leader does not know the queue", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, q.Ask(noon, key("first"), []Limit{a}))
		require.False(t, goes(q, noon, "second", a))
		q.Clear()
		require.Zero(t, q.Len())
		require.True(t, goes(q, noon, "third", a))
		q.Leave(noon, key("first"), false)
		require.False(t, goes(q, noon, "fourth", a), "a token of the last term is not returned")
		q.Clear()
		require.True(t, goes(q, noon, "fifth", a))
		require.False(t, goes(q, noon, "sixth", a))
		q.Clear()
		called, in := q.Next(after(time.Second))
		require.Empty(t, called, "no pod of the last term is called")
		require.Zero(t, in)
	})
}

func TestSeveralLimits(t *testing.T) {
	t.Parallel()

	t.Run("a pod goes when all of its policies have a token", func(t *testing.T) {
		t.Parallel()
		q, slow, fast := NewQueue(), rate("slow", 1, 1), rate("fast", 10, 1)
		require.True(t, goes(q, noon, "first", slow, fast))
		require.False(t, goes(q, noon, "second", fast, slow), "in whatever order they are named")
		require.Equal(t, after(time.Second), drain(t, q, noon, always(slow, fast))["second"])
	})

	t.Run("a limit that is named twice is one", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 2)
		require.True(t, q.Ask(noon, key("first"), []Limit{a, a}))
		require.True(t, goes(q, noon, "second", a))
		require.False(t, goes(q, noon, "third", a))
	})

	t.Run("a slow policy does not slow the pods of others", func(t *testing.T) {
		t.Parallel()
		q, slow, all := NewQueue(), rate("slow", 1, 1), rate("all", 100, 1)
		for _, name := range pods("slow", 20) {
			goes(q, noon, name, slow, all)
		}
		for _, name := range pods("other", 500) {
			goes(q, noon, name, all)
		}
		went := drain(t, q, noon, func(k tracker.Key) []Limit {
			if k.Name[0] == 's' {
				return []Limit{slow, all}
			}
			return []Limit{all}
		})
		require.Less(t, went["other499"].Sub(noon), 5200*time.Millisecond)
		for i, name := range pods("slow", 20)[1:] {
			require.Equal(t, after(time.Duration(i+1)*time.Second), went[name], "%s is not put off by those who pass it", name)
		}
	})

	t.Run("a pod that needs two tokens is not starved by pods that need one of them", func(t *testing.T) {
		t.Parallel()
		q, a, b := NewQueue(), rate("a", 1, 1), rate("b", 1, 1)
		require.True(t, goes(q, noon, "a-first", a))
		require.True(t, goes(q, after(500*time.Millisecond), "b-first", b))
		require.False(t, goes(q, after(500*time.Millisecond), "both", a, b))
		for _, name := range pods("a", 100) {
			require.False(t, goes(q, after(500*time.Millisecond), name, a))
		}
		for _, name := range pods("b", 100) {
			require.False(t, goes(q, after(500*time.Millisecond), name, b))
		}
		went := drain(t, q, after(500*time.Millisecond), func(k tracker.Key) []Limit {
			if k == key("both") {
				return []Limit{a, b}
			}
			return map[byte][]Limit{'a': {a}, 'b': {b}}[k.Name[0]]
		})
		require.Equal(t, after(1500*time.Millisecond), went["both"])
	})
}

func TestPacesChange(t *testing.T) {
	t.Parallel()

	t.Run("a faster pace holds at once, and is no new burst", func(t *testing.T) {
		t.Parallel()
		q, slow, fast := NewQueue(), rate("a", 1, 1), rate("a", 10, 50)
		require.True(t, goes(q, noon, "first", slow))
		for _, name := range pods("p", 5) {
			require.False(t, goes(q, noon, name, slow))
		}
		q.Update(noon, []Limit{fast})
		_, in := q.Next(noon)
		require.Equal(t, 100*time.Millisecond, in)
		went := drain(t, q, noon, always(fast))
		require.Equal(t, after(500*time.Millisecond), went["p4"])
	})

	t.Run("a slower pace takes away what is too much", func(t *testing.T) {
		t.Parallel()
		q := NewQueue()
		require.True(t, goes(q, noon, "first", rate("a", 100, 100)))
		slow := rate("a", 1, 2)
		require.True(t, goes(q, noon, "second", slow))
		require.True(t, goes(q, noon, "third", slow))
		require.False(t, goes(q, noon, "fourth", slow))
		require.Equal(t, after(time.Second), drain(t, q, noon, always(slow))["fourth"])
	})

	for name, updated := range map[string]bool{
		"who was called before the pace was lowered waits again, in the old place":            true,
		"who was called before another pod asks with a lower pace waits again, in that place": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, fast, slow := NewQueue(), rate("a", 10, 3), rate("a", 1, 1)
			for _, name := range pods("first", 3) {
				require.True(t, goes(q, noon, name, fast))
			}
			for _, name := range pods("p", 4) {
				require.False(t, goes(q, noon, name, fast))
			}
			called, _ := q.Next(after(300 * time.Millisecond))
			require.Len(t, called, 3)
			if updated {
				q.Update(after(300*time.Millisecond), []Limit{slow})
			}
			require.False(t, goes(q, after(300*time.Millisecond), "p1", slow))
			require.True(t, goes(q, after(300*time.Millisecond), "p0", slow), "it arrived first, and there is one token")
			require.False(t, goes(q, after(300*time.Millisecond), "p2", slow))
			went := drain(t, q, after(300*time.Millisecond), always(slow))
			require.Equal(t, []time.Time{after(1300 * time.Millisecond), after(2300 * time.Millisecond), after(3300 * time.Millisecond)},
				[]time.Time{went["p1"], went["p2"], went["p3"]})
		})
	}

	t.Run("the end of a limit calls all pods that wait for it", func(t *testing.T) {
		t.Parallel()
		q, a, b := NewQueue(), rate("a", 1, 1), rate("b", 1, 1)
		require.True(t, goes(q, noon, "first", a, b))
		for _, name := range pods("p", 100) {
			require.False(t, goes(q, noon, name, a, b))
		}
		q.Update(noon, []Limit{b})
		called, _ := q.Next(noon)
		require.Len(t, called, 100)
		for i := range called {
			require.False(t, goes(q, noon, called[len(called)-1-i].Name, b))
		}
		called, _ = q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p0")}, called, "they keep their order")
	})

	t.Run("pods that were called before their limit ended are called, too", func(t *testing.T) {
		t.Parallel()
		q, a, b := NewQueue(), rate("a", 1, 1), rate("b", 1, 1)
		require.True(t, goes(q, noon, "first", a))
		for _, name := range pods("p", 2) {
			require.False(t, goes(q, noon, name, a))
		}
		require.False(t, goes(q, after(time.Second), "p1", a), "p0 is called by this")
		q.Update(after(time.Second), []Limit{b})
		require.True(t, goes(q, after(time.Second), "other", rate("b", 2, 2)))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p0"), key("p1")}, called)
	})

	t.Run("a pod keeps its place when its limits change", func(t *testing.T) {
		t.Parallel()
		q, a, b := NewQueue(), rate("a", 1, 1), rate("b", 1, 1)
		require.True(t, goes(q, noon, "first-a", a))
		require.True(t, goes(q, noon, "first-b", b))
		require.False(t, goes(q, noon, "early", a))
		require.False(t, goes(q, noon, "late", b))
		require.False(t, goes(q, noon, "early", b))
		called, _ := q.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("early")}, called)
	})

	t.Run("a clock that is set back does not stop pods for longer than the time to fill a bucket", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 2)
		require.True(t, goes(q, noon, "first", a))
		back := noon.Add(-time.Hour)
		require.False(t, goes(q, back, "second", a))
		require.True(t, goes(q, back.Add(time.Second), "second", a))
	})

	t.Run("times that workers pass out of order are not credited twice", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1000, 1)
		late, early := after(10*time.Millisecond), after(9*time.Millisecond)
		require.True(t, goes(q, late, "first", a))
		require.False(t, goes(q, early, "second", a))
		require.False(t, goes(q, late, "second", a))
		require.True(t, goes(q, after(11*time.Millisecond), "second", a))
	})

	t.Run("buckets that are full and not needed are forgotten", func(t *testing.T) {
		t.Parallel()
		q := NewQueue()
		require.True(t, goes(q, noon, "first", rate("a", 1, 2)))
		q.Next(noon)
		require.Len(t, q.buckets, 1)
		q.Next(after(time.Second))
		require.Empty(t, q.buckets)
		require.Empty(t, q.groups)
	})
}

func TestAttempts(t *testing.T) {
	t.Parallel()

	t.Run("an attempt that evicted nobody gives its token to the next", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 5)
		for _, name := range pods("blocked", 5) {
			require.True(t, q.Ask(noon, key(name), []Limit{a}))
		}
		require.False(t, goes(q, noon, "next", a))
		q.Leave(noon, key("blocked3"), false)
		called, _ := q.Next(noon)
		require.Equal(t, []tracker.Key{key("next")}, called)
		require.True(t, goes(q, noon, "next", a))
	})

	t.Run("a pod that left gives its token back an interval after that was known, however long it took", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 2)
		require.True(t, q.Ask(noon, key("slow"), []Limit{a}))
		require.True(t, goes(q, noon, "quick", a))
		require.False(t, goes(q, noon, "p0", a))
		require.False(t, goes(q, noon, "p1", a))
		require.True(t, goes(q, after(time.Second), "p0", a))
		called, _ := q.Next(after(time.Minute))
		require.Equal(t, []tracker.Key{key("p1")}, called, "the other token serves meanwhile")
		require.True(t, goes(q, after(time.Minute), "p1", a))
		require.False(t, goes(q, after(time.Minute), "p2", a), "slow may leave in this moment, too")
		q.Leave(after(time.Minute), key("slow"), true)
		require.False(t, goes(q, after(time.Minute), "p2", a))
		require.Equal(t, after(61*time.Second), drain(t, q, after(time.Minute), always(a))["p2"])
	})

	t.Run("who waits for those on their way is called when one of them has left", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 1)
		require.True(t, q.Ask(noon, key("first"), []Limit{a}))
		require.False(t, goes(q, noon, "second", a))
		called, in := q.Next(after(time.Hour))
		require.Empty(t, called)
		require.Equal(t, time.Second, in, "not before, even if it left now")
		<-q.changed
		q.Leave(after(time.Hour), key("first"), true)
		require.Len(t, q.changed, 1, "that may be earlier than it looked")
		_, in = q.Next(after(time.Hour))
		require.Equal(t, time.Second, in)
		called, _ = q.Next(after(time.Hour + time.Second))
		require.Equal(t, []tracker.Key{key("second")}, called)
	})

	t.Run("those on their way when the pace is lowered count", func(t *testing.T) {
		t.Parallel()
		q, slow := NewQueue(), rate("a", 1, 2)
		for _, name := range pods("p", 3) {
			require.True(t, q.Ask(noon, key(name), []Limit{rate("a", 100, 100)}))
		}
		q.Update(noon, []Limit{slow})
		require.False(t, goes(q, noon, "late", slow))
		q.Leave(after(time.Second), key("p0"), false)
		require.False(t, goes(q, after(time.Second), "late", slow))
		q.Leave(after(time.Second), key("p1"), false)
		require.True(t, goes(q, after(time.Second), "late", slow), "one is left on its way, and there is room for two")
		q.Leave(after(time.Second), key("p2"), true)
		require.False(t, goes(q, after(time.Second), "last", slow))
		require.Equal(t, after(2*time.Second), drain(t, q, after(time.Second), always(slow))["last"])
	})

	t.Run("only the first time counts", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 2)
		require.True(t, q.Ask(noon, key("first"), []Limit{a}))
		require.True(t, goes(q, noon, "second", a))
		q.Leave(noon, key("first"), true)
		q.Leave(noon, key("first"), false)
		require.False(t, goes(q, noon, "third", a))
	})

	t.Run("a pod that is evicted again is counted once, until its token is refilled", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 3)
		for range 3 {
			require.True(t, goes(q, noon, "unknown", a))
		}
		require.True(t, goes(q, noon, "p0", a))
		require.True(t, goes(q, noon, "p1", a))
		require.False(t, goes(q, noon, "p2", a))
		q.Leave(noon, key("p2"), false)
		require.True(t, goes(q, after(3*time.Second), "unknown", a), "all tokens are refilled")
		require.True(t, goes(q, after(3*time.Second), "p2", a))
		require.True(t, goes(q, after(3*time.Second), "p3", a))
		require.False(t, goes(q, after(3*time.Second), "p4", a))
	})

	t.Run("an attempt that evicted nobody does not take back what an earlier one used", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 2)
		require.True(t, goes(q, noon, "unknown", a))
		require.True(t, q.Ask(noon, key("unknown"), []Limit{a}))
		q.Leave(noon, key("unknown"), false)
		require.True(t, goes(q, noon, "p0", a))
		require.False(t, goes(q, noon, "p1", a))
	})

	t.Run("a token that is refilled since is not credited, after the pace was raised or the clock set back", func(t *testing.T) {
		t.Parallel()
		q, slow, fast := NewQueue(), rate("a", 1, 3), rate("a", 1000, 3)
		for _, name := range pods("p", 3) {
			require.True(t, goes(q, noon, name, slow))
		}
		now := after(time.Second)
		q.Update(noon, []Limit{fast})
		require.True(t, goes(q, now, "p3", fast))
		require.True(t, goes(q, now, "p4", fast))
		require.True(t, goes(q, now, "p2", fast))
		require.False(t, goes(q, now, "p5", fast))

		q, back := NewQueue(), noon.Add(-time.Hour)
		require.True(t, goes(q, noon, "p", rate("a", 1, 1)))
		require.False(t, goes(q, back, "p", rate("a", 1, 1)))
		require.True(t, goes(q, back.Add(time.Second), "p", rate("a", 1, 1)))
		require.False(t, goes(q, back.Add(time.Second), "other", rate("a", 1, 1)))
	})

	t.Run("pods whose tokens are refilled are forgotten", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 1, 5)
		for i, name := range pods("p", 1000) {
			require.True(t, goes(q, after(time.Duration(i)*time.Second), name, a))
		}
		require.LessOrEqual(t, len(q.buckets["a"].used), 10)
	})

	t.Run("G18 pods that a budget blocks do not slow those that can go", func(t *testing.T) {
		t.Parallel()
		q, a := NewQueue(), rate("a", 10, 10)
		left := 0
		for i := range 10_000 {
			now := after(time.Duration(i) * time.Millisecond)
			if q.Ask(now, key("blocked"), []Limit{a}) {
				q.Leave(now, key("blocked"), false)
			}
			if i%100 == 0 && goes(q, now, pods("p", 100)[i/100], a) {
				left++
			}
		}
		require.GreaterOrEqual(t, left, 99)
	})
}

func TestLimitsOfPolicies(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Limit{rate("u", 5, 7)}, LimitsOf([]*eviction.Policy{
		{UID: "none"}, {UID: "u", Pace: &eviction.Pace{PerSecond: 5, Burst: 7}},
	}))
	require.Empty(t, LimitsOf(nil))
	require.Equal(t, 333333334*time.Nanosecond, rate("a", 3, 0).interval(), "rounded up")
}
