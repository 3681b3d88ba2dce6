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
		l, a := NewLines(), line("a", 10, 3)
		for i, name := range pods("p", 8) {
			require.Equal(t, i < 3, goes(l, noon, name, a), name)
		}
		require.Equal(t, 5, l.Len())
		went := drain(t, l, noon, always(a))
		for i, name := range pods("p", 8)[3:] {
			require.Equal(t, after(time.Duration(i+1)*100*time.Millisecond), went[name], name)
		}
	})

	t.Run("without a burst as many as leave in a second", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		for i, name := range pods("p", 6) {
			require.Equal(t, i < 5, goes(l, noon, name, line("a", 5, 0)), name)
		}
	})

	t.Run("who comes when others wait does not go before them", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		require.False(t, goes(l, noon, "second", a))
		require.False(t, goes(l, after(time.Second), "third", a))
		require.True(t, goes(l, after(time.Second), "second", a))
	})

	t.Run("asking again changes nothing", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		for range 3 {
			require.False(t, goes(l, noon, "second", a))
			require.False(t, goes(l, noon, "third", a))
		}
		require.Equal(t, 2, l.Len())
		require.True(t, l.Waits(key("third")))
		went := drain(t, l, noon, always(a))
		require.Equal(t, []time.Time{after(time.Second), after(2 * time.Second)}, []time.Time{went["second"], went["third"]})
	})

	t.Run("without a limit a pod goes at once, also one that has waited", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		require.False(t, goes(l, noon, "second", a))
		require.True(t, goes(l, noon, "second"))
		require.True(t, goes(l, noon, "third"))
		require.Zero(t, l.Len())
		require.False(t, l.Waits(key("second")))
	})

	t.Run("a pod that leaves costs nothing, waiting or called", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		for _, name := range pods("p", 4) {
			require.False(t, goes(l, noon, name, a))
		}
		l.Leave(noon, key("p0"))
		l.Leave(noon, key("nobody"))
		called, _, _ := l.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p1")}, called)
		l.Leave(after(time.Second), key("p1"))
		called, _, _ = l.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p2")}, called, "in the same moment")
		require.True(t, goes(l, after(time.Second), "p2", a))
	})

	t.Run("who is called and does not come has lost its place, and nobody waits for it", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		require.False(t, goes(l, noon, "gone", a))
		require.False(t, goes(l, noon, "next", a))
		called, _, _ := l.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("gone")}, called)
		called, in, waiting := l.Next(after(2 * time.Second))
		require.Empty(t, called, "nobody is called twice")
		require.True(t, waiting)
		require.LessOrEqual(t, in, answersWithin)
		require.False(t, goes(l, after(3*time.Second), "next", a), "the token is kept for a while")
		called, _, _ = l.Next(after(6 * time.Second))
		require.Equal(t, []tracker.Key{key("next")}, called)
		require.False(t, goes(l, after(6*time.Second), "gone", a), "it is the last now")
		require.True(t, goes(l, after(6*time.Second), "next", a))
		require.True(t, goes(l, after(7*time.Second), "gone", a))
	})

	t.Run("whoever comes to empty lines is told of at once", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		require.True(t, goes(l, noon, "first", a))
		_, _, waiting := l.Next(noon)
		require.False(t, waiting)
		require.False(t, goes(l, noon, "second", a))
		require.Len(t, l.changed, 1)
		_, in, waiting := l.Next(noon)
		require.True(t, waiting)
		require.Equal(t, time.Second, in)
	})

	t.Run("who leads next knows nothing of the lines", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		ticket, _ := l.Ask(noon, key("first"), []Limit{a})
		require.False(t, goes(l, noon, "second", a))
		l.Clear()
		require.Zero(t, l.Len())
		require.True(t, goes(l, noon, "third", a))
		ticket.Settle(noon, false)
		require.False(t, goes(l, noon, "fourth", a), "a ticket of the last term is worth nothing")
	})
}

func TestSeveralLines(t *testing.T) {
	t.Parallel()

	t.Run("a pod goes when all of its lines have a token", func(t *testing.T) {
		t.Parallel()
		l, slow, fast := NewLines(), line("slow", 1, 1), line("fast", 10, 1)
		require.True(t, goes(l, noon, "first", slow, fast))
		require.False(t, goes(l, noon, "second", fast, slow), "in whatever order they are named")
		require.Equal(t, after(time.Second), drain(t, l, noon, always(slow, fast))["second"])
	})

	t.Run("a line that is named twice is one", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 2)
		require.True(t, goes(l, noon, "first", a, a))
		require.True(t, goes(l, noon, "second", a))
		require.False(t, goes(l, noon, "third", a))
	})

	t.Run("a slow line does not slow those who do not stand in it", func(t *testing.T) {
		t.Parallel()
		l, slow, all := NewLines(), line("slow", 1, 1), line("all", 100, 1)
		for _, name := range pods("slow", 20) {
			goes(l, noon, name, slow, all)
		}
		for _, name := range pods("other", 500) {
			goes(l, noon, name, all)
		}
		went := drain(t, l, noon, func(k tracker.Key) []Limit {
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

	t.Run("who needs two lines is not starved by those who need one of them", func(t *testing.T) {
		t.Parallel()
		l, a, b := NewLines(), line("a", 1, 1), line("b", 1, 1)
		require.True(t, goes(l, noon, "a-first", a))
		require.True(t, goes(l, after(500*time.Millisecond), "b-first", b))
		require.False(t, goes(l, after(500*time.Millisecond), "both", a, b))
		for _, name := range pods("a", 100) {
			require.False(t, goes(l, after(500*time.Millisecond), name, a))
		}
		for _, name := range pods("b", 100) {
			require.False(t, goes(l, after(500*time.Millisecond), name, b))
		}
		went := drain(t, l, after(500*time.Millisecond), func(k tracker.Key) []Limit {
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
		l, slow, fast := NewLines(), line("a", 1, 1), line("a", 10, 50)
		require.True(t, goes(l, noon, "first", slow))
		for _, name := range pods("p", 5) {
			require.False(t, goes(l, noon, name, slow))
		}
		l.Update(noon, []Limit{fast})
		_, in, _ := l.Next(noon)
		require.Equal(t, 100*time.Millisecond, in)
		went := drain(t, l, noon, always(fast))
		require.Equal(t, after(500*time.Millisecond), went["p4"])
	})

	t.Run("a slower pace takes away what is too much", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		require.True(t, goes(l, noon, "first", line("a", 100, 100)))
		slow := line("a", 1, 2)
		require.True(t, goes(l, noon, "second", slow))
		require.True(t, goes(l, noon, "third", slow))
		require.False(t, goes(l, noon, "fourth", slow))
		require.Equal(t, after(time.Second), drain(t, l, noon, always(slow))["fourth"])
	})

	t.Run("who was called before the pace was lowered waits again, in the old place", func(t *testing.T) {
		t.Parallel()
		l, fast, slow := NewLines(), line("a", 10, 3), line("a", 1, 1)
		for _, name := range pods("first", 3) {
			require.True(t, goes(l, noon, name, fast))
		}
		for _, name := range pods("p", 4) {
			require.False(t, goes(l, noon, name, fast))
		}
		called, _, _ := l.Next(after(300 * time.Millisecond))
		require.Len(t, called, 3)
		l.Update(after(300*time.Millisecond), []Limit{slow})
		require.True(t, goes(l, after(300*time.Millisecond), "p1", slow), "it has one of the tokens")
		require.False(t, goes(l, after(300*time.Millisecond), "p0", slow))
		require.False(t, goes(l, after(300*time.Millisecond), "p2", slow))
		went := drain(t, l, after(300*time.Millisecond), always(slow))
		require.Equal(t, []time.Time{after(1300 * time.Millisecond), after(2300 * time.Millisecond), after(3300 * time.Millisecond)},
			[]time.Time{went["p0"], went["p2"], went["p3"]})
	})

	t.Run("a line that is no more calls all who stand in it", func(t *testing.T) {
		t.Parallel()
		l, a, b := NewLines(), line("a", 1, 1), line("b", 1, 1)
		require.True(t, goes(l, noon, "first", a, b))
		for _, name := range pods("p", 100) {
			require.False(t, goes(l, noon, name, a, b))
		}
		l.Update(noon, []Limit{b})
		called, _, _ := l.Next(noon)
		require.Len(t, called, 100)
		for i := range called {
			require.False(t, goes(l, noon, called[len(called)-1-i].Name, b))
		}
		called, _, _ = l.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("p0")}, called, "they keep their order")
	})

	t.Run("a pod keeps its place when it changes lines", func(t *testing.T) {
		t.Parallel()
		l, a, b := NewLines(), line("a", 1, 1), line("b", 1, 1)
		require.True(t, goes(l, noon, "first-a", a))
		require.True(t, goes(l, noon, "first-b", b))
		require.False(t, goes(l, noon, "early", a))
		require.False(t, goes(l, noon, "late", b))
		require.False(t, goes(l, noon, "early", b))
		called, _, _ := l.Next(after(time.Second))
		require.Equal(t, []tracker.Key{key("early")}, called)
	})

	t.Run("a clock that is set back does not stop a line for longer than it takes to fill", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 2)
		require.True(t, goes(l, noon, "first", a))
		back := noon.Add(-time.Hour)
		require.False(t, goes(l, back, "second", a))
		require.True(t, goes(l, back.Add(time.Second), "second", a))
	})

	t.Run("lines in which nobody stands are forgotten when they are full", func(t *testing.T) {
		t.Parallel()
		l := NewLines()
		require.True(t, goes(l, noon, "first", line("a", 1, 2)))
		l.Next(noon)
		require.Len(t, l.buckets, 1)
		l.Next(after(time.Second))
		require.Empty(t, l.buckets)
		require.Empty(t, l.groups)
	})
}

func TestTickets(t *testing.T) {
	t.Parallel()

	t.Run("an attempt that evicted nobody gives its token to the next", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 5)
		var tickets []Ticket
		for _, name := range pods("blocked", 5) {
			ticket, ok := l.Ask(noon, key(name), []Limit{a})
			require.True(t, ok)
			tickets = append(tickets, ticket)
		}
		require.False(t, goes(l, noon, "next", a))
		tickets[3].Settle(noon, false)
		called, _, _ := l.Next(noon)
		require.Equal(t, []tracker.Key{key("next")}, called)
		require.True(t, goes(l, noon, "next", a))
	})

	t.Run("a pod that left gives its token back an interval after that was known, however long it took", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 2)
		slow, ok := l.Ask(noon, key("slow"), []Limit{a})
		require.True(t, ok)
		require.True(t, goes(l, noon, "quick", a))
		require.False(t, goes(l, noon, "p0", a))
		require.False(t, goes(l, noon, "p1", a))
		require.True(t, goes(l, after(time.Second), "p0", a))
		called, _, _ := l.Next(after(time.Minute))
		require.Equal(t, []tracker.Key{key("p1")}, called, "the other token serves meanwhile")
		require.True(t, goes(l, after(time.Minute), "p1", a))
		require.False(t, goes(l, after(time.Minute), "p2", a), "slow may leave in this moment, too")
		slow.Settle(after(time.Minute), true)
		require.False(t, goes(l, after(time.Minute), "p2", a))
		require.Equal(t, after(61*time.Second), drain(t, l, after(time.Minute), always(a))["p2"])
	})

	t.Run("who waits for those on their way is called when one of them has left", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 1)
		first, ok := l.Ask(noon, key("first"), []Limit{a})
		require.True(t, ok)
		require.False(t, goes(l, noon, "second", a))
		called, in, waiting := l.Next(after(time.Hour))
		require.Empty(t, called)
		require.True(t, waiting)
		require.Equal(t, time.Second, in, "not before, even if it left now")
		<-l.changed
		first.Settle(after(time.Hour), true)
		require.Len(t, l.changed, 1, "that may be earlier than it looked")
		_, in, _ = l.Next(after(time.Hour))
		require.Equal(t, time.Second, in)
		called, _, _ = l.Next(after(time.Hour + time.Second))
		require.Equal(t, []tracker.Key{key("second")}, called)
	})

	t.Run("those on their way when the pace is lowered count", func(t *testing.T) {
		t.Parallel()
		l, slow := NewLines(), line("a", 1, 2)
		var tickets []Ticket
		for _, name := range pods("p", 3) {
			ticket, ok := l.Ask(noon, key(name), []Limit{line("a", 100, 100)})
			require.True(t, ok)
			tickets = append(tickets, ticket)
		}
		l.Update(noon, []Limit{slow})
		require.False(t, goes(l, noon, "late", slow))
		tickets[0].Settle(after(time.Second), false)
		require.False(t, goes(l, after(time.Second), "late", slow))
		tickets[1].Settle(after(time.Second), false)
		require.True(t, goes(l, after(time.Second), "late", slow), "one is left on its way, and there is room for two")
		tickets[2].Settle(after(time.Second), true)
		require.False(t, goes(l, after(time.Second), "last", slow))
		require.Equal(t, after(2*time.Second), drain(t, l, after(time.Second), always(slow))["last"])
	})

	t.Run("only the first time counts", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 1, 2)
		ticket, _ := l.Ask(noon, key("first"), []Limit{a})
		require.True(t, goes(l, noon, "second", a))
		ticket.Settle(noon, true)
		ticket.Settle(noon, false)
		require.False(t, goes(l, noon, "third", a))
		Ticket{}.Settle(noon, false)
	})

	t.Run("G18 pods that a budget blocks do not slow those that can go", func(t *testing.T) {
		t.Parallel()
		l, a := NewLines(), line("a", 10, 10)
		left := 0
		for i := range 10_000 {
			now := after(time.Duration(i) * time.Millisecond)
			blocked, ok := l.Ask(now, key("blocked"), []Limit{a})
			if ok {
				blocked.Settle(now, false)
			}
			if i%100 == 0 && goes(l, now, pods("p", 100)[i/100], a) {
				left++
			}
		}
		require.GreaterOrEqual(t, left, 99)
	})
}

func TestLimitsOfPolicies(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Limit{line("u", 5, 7)}, LimitsOf([]*eviction.Policy{
		{UID: "none"}, {UID: "u", Pace: &eviction.Pace{PerSecond: 5, Burst: 7}},
	}))
	require.Empty(t, LimitsOf(nil))
	require.Equal(t, time.Second, Limit{}.interval(), "nonsense is slow")
	require.Equal(t, 1, Limit{}.burst())
	require.Equal(t, 333333334*time.Nanosecond, line("a", 3, 0).interval(), "rounded up")
}
