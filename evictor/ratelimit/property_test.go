package ratelimit

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// counted is the dumb bucket: it knows of each pod that left when its token is there
// again, and does not know of attempts that evicted nobody.
type counted struct {
	limit Limit
	again []time.Time
}

func (c *counted) left(now time.Time) {
	last := now
	if n := len(c.again); n > 0 && c.again[n-1].After(now) {
		last = c.again[n-1]
	}
	c.again = append(c.again, last.Add(c.limit.interval()))
}

// tokens returns how many there are if so many pods are on their way.
func (c *counted) tokens(now time.Time, out int) int {
	tokens := c.limit.burst() - out
	for _, at := range c.again {
		if at.After(now) {
			tokens--
		}
	}
	return tokens
}

// TestATokenThatComesBackWasNeverTaken compares a bucket with one that counts.
func TestATokenThatComesBackWasNeverTaken(t *testing.T) {
	t.Parallel()
	r := random(t)
	returned, empty := 0, 0
	for world := range 300 {
		limit := line("a", 1+r.IntN(20), 1+r.IntN(6))
		b, c, now, out := newBucket(limit), &counted{limit: limit}, noon, 0
		for range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(2 * limit.interval()))))
			tokens := c.tokens(now, out)
			require.GreaterOrEqual(t, tokens, 0, "world %d", world)
			for others := range limit.burst() + 2 {
				if (tokens > others) != (b.wait(now, others) == 0) {
					require.Failf(t, "wrong", "world %d: %d tokens, %d others, wait %s", world, tokens, others, b.wait(now, others))
				}
			}
			if tokens == 0 {
				empty++
			}
			switch r.IntN(3) {
			case 0:
				if tokens > 0 {
					b.take()
					out++
				}
			case 1:
				if out > 0 {
					b.settle(now, false)
					out--
					returned++
				}
			default:
				if out > 0 {
					foretold := b.wait(now, 0)
					b.settle(now, true)
					c.left(now)
					out--
					require.Equal(t, foretold, b.wait(now, 0), "who leaves was counted before")
				}
			}
		}
	}
	require.Greater(t, returned, 1000)
	require.Greater(t, empty, 1000)
}

// TestTakenBackIsNoMoreThanNeverUsed compares a bucket from which some uses are taken back with
// one that counts again from the beginning what was used and not taken back.
func TestTakenBackIsNoMoreThanNeverUsed(t *testing.T) {
	t.Parallel()
	r := random(t)
	type use struct {
		at    time.Time
		token used
	}
	helped := 0
	for world := range 300 {
		limit := line("a", 1+r.IntN(20), 1+r.IntN(6))
		b, now := newBucket(limit), noon
		var uses []use
		without := func() *counted {
			c := &counted{limit: limit}
			for _, u := range uses {
				c.left(u.at)
			}
			return c
		}
		for range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(limit.interval()))))
			tokens := without().tokens(now, 0)
			require.False(t, b.wait(now, 0) == 0 && tokens <= 0, "world %d: there is a token where there must be none", world)
			switch {
			case r.IntN(2) == 0 && b.wait(now, 0) == 0:
				b.take()
				b.settle(now, true)
				uses = append(uses, use{now, b.last()})
			case len(uses) > 0 && r.IntN(3) == 0:
				at := r.IntN(len(uses))
				before := b.full
				b.takeBack(now, uses[at].token)
				if b.full.Before(before) {
					helped++
				}
				uses = slices.Delete(uses, at, at+1)
			}
		}
	}
	require.Greater(t, helped, 300)
}

// TestNoPaceIsEverExceeded has pods come, go, leave, be blocked and change lines at
// random, and looks at when those left that were evicted: at any time between the
// beginning and the end of the attempt, and all together after nobody answered for a while.
func TestNoPaceIsEverExceeded(t *testing.T) {
	t.Parallel()
	r := random(t)
	evicted, called, outages := 0, 0, 0
	for range 30 {
		w := newWorld(r)
		for range 400 {
			w.step()
		}
		w.finish(t)
		for policy, limit := range w.limits {
			requirePace(t, limit, w.left[policy])
			requirePace(t, limit, w.settled[policy])
			evicted += len(w.left[policy])
		}
		called += w.called
		outages += w.outages
	}
	require.Greater(t, evicted, 1000)
	require.Greater(t, called, 1000)
	require.Greater(t, outages, 30)
}

// world is lines with pods that behave as they like.
type world struct {
	*rand.Rand
	lines  *Lines
	now    time.Time
	limits map[types.UID]Limit
	// wants are the lines of the pods that have not gone.
	wants   map[tracker.Key][]Limit
	flights []flight
	// left is when pods left, and settled when that was known.
	left, settled map[types.UID][]time.Time
	pods          int
	called        int
	// away is for how many steps more nobody answers, and outages how often that began.
	away, outages int
}

// flight is an attempt that is not over.
type flight struct {
	pod    tracker.Key
	ticket Ticket
	began  time.Time
	lines  []Limit
}

func newWorld(r *rand.Rand) *world {
	w := &world{
		Rand: r, lines: NewLines(), now: noon,
		limits: map[types.UID]Limit{}, wants: map[tracker.Key][]Limit{},
		left: map[types.UID][]time.Time{}, settled: map[types.UID][]time.Time{},
	}
	for _, policy := range []string{"a", "b", "c"} {
		w.limits[types.UID(policy)] = line(policy, 1+r.IntN(50), 1+r.IntN(20))
	}
	return w
}

func (w *world) some() []Limit {
	var some []Limit
	for _, policy := range []types.UID{"a", "b", "c"} {
		if w.IntN(2) == 0 {
			some = append(some, w.limits[policy])
		}
	}
	return some
}

func (w *world) anyPod() (tracker.Key, bool) {
	keys := make([]tracker.Key, 0, len(w.wants))
	for k := range w.wants {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return tracker.Key{}, false
	}
	slices.SortFunc(keys, func(a, b tracker.Key) int { return len(a.Name)*10 - len(b.Name)*10 })
	return keys[w.IntN(len(keys))], true
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.Int64N(int64(20 * time.Millisecond))))
	if w.away > 0 {
		if w.away--; w.away == 0 {
			w.landAll()
		}
	}
	switch w.IntN(8) {
	case 0, 1, 2:
		w.pods++
		k := key("p" + strconv.Itoa(w.pods))
		w.wants[k] = w.some()
		w.ask(k)
	case 3:
		if k, ok := w.anyPod(); ok && w.IntN(3) == 0 {
			delete(w.wants, k)
			w.lines.Leave(w.now, k)
		}
	case 4:
		if k, ok := w.anyPod(); ok && w.IntN(3) == 0 {
			w.wants[k] = w.some()
			w.ask(k)
		}
	case 5:
		switch {
		case w.away > 0:
		case w.IntN(20) == 0:
			w.away = 1 + w.IntN(100)
			w.outages++
		default:
			w.land(w.IntN(3) > 0)
		}
	default:
		w.call()
	}
}

func (w *world) ask(k tracker.Key) {
	if ticket, ok := w.lines.Ask(w.now, k, w.wants[k]); ok {
		w.flights = append(w.flights, flight{pod: k, ticket: ticket, began: w.now, lines: w.wants[k]})
		delete(w.wants, k)
	}
}

// call calls pods, of which most come.
func (w *world) call() {
	called, _, _ := w.lines.Next(w.now)
	w.called += len(called)
	for _, k := range called {
		if w.IntN(10) > 0 {
			w.ask(k)
		}
	}
}

// land ends an attempt. A pod that was not evicted asks again.
func (w *world) land(evicted bool) {
	if len(w.flights) == 0 {
		return
	}
	i := w.IntN(len(w.flights))
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	f.ticket.Settle(w.now, evicted)
	if !evicted {
		w.wants[f.pod] = f.lines
		w.ask(f.pod)
		return
	}
	at := f.began.Add(time.Duration(w.Int64N(int64(w.now.Sub(f.began)) + 1)))
	for _, limit := range f.lines {
		w.left[limit.Policy] = append(w.left[limit.Policy], at)
		w.settled[limit.Policy] = append(w.settled[limit.Policy], w.now)
	}
}

// landAll ends all attempts at once.
func (w *world) landAll() {
	for range len(w.flights) {
		w.land(true)
	}
}

// finish lets all pods go that want to. A pod that lost its place asks again.
func (w *world) finish(t *testing.T) {
	t.Helper()
	for i := 0; len(w.wants) > 0; i++ {
		require.Less(t, i, 100_000, "pods wait for ever")
		w.now = w.now.Add(10 * time.Millisecond)
		w.call()
		w.land(w.IntN(3) > 0)
		if i%1000 == 999 {
			for k := range w.wants {
				w.ask(k)
			}
		}
	}
	w.landAll()
	require.Zero(t, w.lines.Len())
	w.lines.Next(w.now.Add(time.Hour))
	require.Empty(t, w.lines.buckets, "and nothing is left of them")
	require.Empty(t, w.lines.groups)
	for _, left := range w.left {
		slices.SortFunc(left, time.Time.Compare)
	}
}

// TestWhoCameFirstIsCalledFirst holds for the pods that stand in the same lines, and
// all of them are gone by the time that the slowest line needs for them.
func TestWhoCameFirstIsCalledFirst(t *testing.T) {
	t.Parallel()
	r := random(t)
	for world := range 40 {
		limits := []Limit{line("a", 1+r.IntN(50), 1+r.IntN(5)), line("b", 1+r.IntN(50), 1+r.IntN(5)), line("c", 1+r.IntN(50), 1+r.IntN(5))}
		l, sets := NewLines(), map[tracker.Key][]Limit{}
		order := map[string][]string{}
		inLine := map[types.UID]int{}
		went := map[string]time.Time{}
		for _, name := range pods("p", 200) {
			var set []Limit
			for len(set) == 0 {
				for _, limit := range limits {
					if r.IntN(2) == 0 {
						set = append(set, limit)
					}
				}
			}
			sets[key(name)] = set
			order[nameOf(set)] = append(order[nameOf(set)], name)
			for _, limit := range set {
				inLine[limit.Policy]++
			}
			if goes(l, noon, name, set...) {
				went[name] = noon
			}
		}
		var longest time.Duration
		for _, limit := range limits {
			longest += time.Duration(inLine[limit.Policy]) * limit.interval()
		}
		for name, at := range drain(t, l, noon, func(k tracker.Key) []Limit { return sets[k] }) {
			went[name] = at
			require.LessOrEqual(t, at.Sub(noon), longest, "world %d", world)
		}
		for _, names := range order {
			require.True(t, slices.IsSortedFunc(names, func(a, b string) int { return went[a].Compare(went[b]) }), "world %d", world)
		}
	}
}
