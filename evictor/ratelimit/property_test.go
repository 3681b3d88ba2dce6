package ratelimit

import (
	"fmt"
	"maps"
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
	tokens := c.limit.Burst - out
	for _, at := range c.again {
		if at.After(now) {
			tokens--
		}
	}
	return tokens
}

// TestATokenThatComesBackWasNeverTaken compares a queue of one policy with one that counts.
func TestATokenThatComesBackWasNeverTaken(t *testing.T) {
	t.Parallel()
	r := random(t)
	returned, empty := 0, 0
	for world := range 300 {
		limit := rate("a", 1+r.IntN(20), 1+r.IntN(6))
		q, c, now, next := NewQueue(), &counted{limit: limit}, noon, 0
		var out []tracker.Key
		for range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(2 * limit.interval()))))
			tokens := c.tokens(now, len(out))
			require.GreaterOrEqual(t, tokens, 0, "world %d", world)
			require.Equal(t, tokens, available(q, now, limit), "world %d", world)
			if tokens == 0 {
				empty++
			}
			switch r.IntN(3) {
			case 0:
				if tokens > 0 {
					next++
					out = append(out, key("p"+strconv.Itoa(next)))
					require.True(t, q.Ask(now, out[len(out)-1], []Limit{limit}))
				}
			case 1:
				if len(out) > 0 {
					q.Leave(now, out[0], false)
					out = out[1:]
					returned++
				}
			default:
				if len(out) > 0 {
					foretold := wait(q, now, limit)
					q.Leave(now, out[0], true)
					c.left(now)
					out = out[1:]
					require.Equal(t, foretold, wait(q, now, limit), "who leaves was counted before")
				}
			}
		}
	}
	require.Greater(t, returned, 1000)
	require.Greater(t, empty, 1000)
}

// available returns how many pods may go now, of two more than the burst. None does.
func available(q *Queue, now time.Time, limit Limit) (tokens int) {
	probes := pods("probe", limit.Burst+2)
	for _, name := range probes {
		if q.Ask(now, key(name), []Limit{limit}) {
			tokens++
		}
	}
	for _, name := range probes {
		q.Leave(now, key(name), false)
	}
	return tokens
}

// wait returns how long a pod would have to wait that came now.
func wait(q *Queue, now time.Time, limit Limit) (in time.Duration) {
	if !q.Ask(now, key("probe"), []Limit{limit}) {
		_, in = q.Next(now)
	}
	q.Leave(now, key("probe"), false)
	return in
}

// TestAPodIsCountedOnce compares a queue in which pods are evicted again, because it was not
// known whether they had left, with one that counts the last eviction of each from the
// beginning.
func TestAPodIsCountedOnce(t *testing.T) {
	t.Parallel()
	r := random(t)
	type use struct {
		at  time.Time
		key tracker.Key
	}
	helped := 0
	for world := range 300 {
		limit := rate("a", 1+r.IntN(20), 1+r.IntN(6))
		q, every, now := NewQueue(), &counted{limit: limit}, noon
		var uses []use
		tokens := func() int {
			once := &counted{limit: limit}
			for _, u := range uses {
				once.left(u.at)
			}
			return once.tokens(now, 0)
		}
		for step := range 100 {
			now = now.Add(time.Duration(r.Int64N(int64(limit.interval()))))
			free := available(q, now, limit)
			require.LessOrEqual(t, free, tokens(), "world %d: there is a token where there must be none", world)
			require.GreaterOrEqual(t, free, every.tokens(now, 0), "world %d: a pod is counted more than once", world)
			if free > every.tokens(now, 0) {
				helped++
			}
			again, pod := r.IntN(3) == 0 && len(uses) > 0, key("p"+strconv.Itoa(step))
			if at := r.IntN(len(uses) + 1); again && at < len(uses) {
				pod = uses[at].key
			}
			if r.IntN(4) > 0 && q.Ask(now, pod, []Limit{limit}) {
				q.Leave(now, pod, true)
				every.left(now)
				uses = append(slices.DeleteFunc(uses, func(u use) bool { return u.key == pod }), use{now, pod})
			} else {
				q.Leave(now, pod, false)
			}
		}
	}
	require.Greater(t, helped, 300)
}

// TestNoPaceIsEverExceeded makes pods ask, leave, step aside, be refused, be evicted again and change
// limits at random. An evicted pod leaves at a random time within its last attempt. After an outage of
// the API server, all pods with an attempt under way leave at once. The test checks the pace of what left.
func TestNoPaceIsEverExceeded(t *testing.T) {
	t.Parallel()
	r := random(t)
	evicted, called, outages, again := 0, 0, 0, 0
	for range 30 {
		w := newWorld(r)
		for range 400 {
			w.step()
		}
		w.finish(t)
		for policy, limit := range w.limits {
			requirePace(t, limit, slices.SortedFunc(maps.Values(w.left[policy]), time.Time.Compare))
			requirePace(t, limit, slices.SortedFunc(maps.Values(w.settled[policy]), time.Time.Compare))
			evicted += len(w.left[policy])
		}
		called += w.called
		outages += w.outages
		again += w.again
	}
	require.Greater(t, evicted, 1000)
	require.Greater(t, called, 1000)
	require.Greater(t, outages, 30)
	require.Greater(t, again, 100)
}

// world is a queue with pods that behave as they like.
type world struct {
	*rand.Rand
	queue  *Queue
	now    time.Time
	limits map[types.UID]Limit
	// wants are the limits of the pods that have not gone.
	wants   map[tracker.Key][]Limit
	flights []flight
	// left is when pods left last, and settled when that was known.
	left, settled map[types.UID]map[tracker.Key]time.Time
	pods          int
	called        int
	// again counts the pods that were evicted and are still there.
	again int
	// away is for how many steps more nobody answers, and outages how often that began.
	away, outages int
}

// flight is an attempt that is not over.
type flight struct {
	pod    tracker.Key
	began  time.Time
	limits []Limit
}

func newWorld(r *rand.Rand) *world {
	w := &world{
		Rand: r, queue: NewQueue(), now: noon,
		limits: map[types.UID]Limit{}, wants: map[tracker.Key][]Limit{},
		left: map[types.UID]map[tracker.Key]time.Time{}, settled: map[types.UID]map[tracker.Key]time.Time{},
	}
	for _, policy := range []string{"a", "b", "c"} {
		w.limits[types.UID(policy)] = rate(policy, 1+r.IntN(50), 1+r.IntN(20))
		w.left[types.UID(policy)], w.settled[types.UID(policy)] = map[tracker.Key]time.Time{}, map[tracker.Key]time.Time{}
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
	switch w.IntN(9) {
	case 0, 1, 2:
		w.pods++
		k := key("p" + strconv.Itoa(w.pods))
		w.wants[k] = w.some()
		w.ask(k)
	case 3:
		if k, ok := w.anyPod(); ok && w.IntN(3) == 0 {
			delete(w.wants, k)
			w.queue.Leave(w.now, k, false)
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
	case 6:
		if k, ok := w.anyPod(); ok && w.IntN(3) == 0 {
			w.queue.StepAside(w.now, k)
		} else if w.IntN(10) == 0 {
			w.queue.Update(w.now, slices.Collect(maps.Values(w.limits)))
		}
	default:
		w.call()
	}
}

func (w *world) ask(k tracker.Key) {
	if w.queue.Ask(w.now, k, w.wants[k]) {
		w.flights = append(w.flights, flight{pod: k, began: w.now, limits: w.wants[k]})
		delete(w.wants, k)
	}
}

// call calls pods, of which most come.
func (w *world) call() {
	called, _ := w.queue.Next(w.now)
	w.called += len(called)
	for _, k := range called {
		if w.IntN(10) > 0 {
			w.ask(k)
		}
	}
}

// land ends an attempt. A pod that was not evicted asks again, and so do some that were.
func (w *world) land(evicted bool) {
	if len(w.flights) == 0 {
		return
	}
	i := w.IntN(len(w.flights))
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	w.queue.Leave(w.now, f.pod, evicted)
	if !evicted {
		w.wants[f.pod] = f.limits
		w.ask(f.pod)
		return
	}
	at := f.began.Add(time.Duration(w.Int64N(int64(w.now.Sub(f.began)) + 1)))
	for _, limit := range f.limits {
		w.left[limit.Policy][f.pod], w.settled[limit.Policy][f.pod] = at, w.now
	}
	if w.IntN(5) == 0 {
		w.again++
		w.wants[f.pod] = f.limits
		w.ask(f.pod)
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
	for len(w.flights) > 0 {
		w.landAll()
	}
	for k := range w.wants {
		w.queue.Leave(w.now, k, false)
	}
	require.Zero(t, w.queue.Len())
	w.queue.Next(w.now.Add(time.Hour))
	require.Empty(t, w.queue.buckets, "and nothing is left of them")
	require.Empty(t, w.queue.groups)
}

// TestWhoCameFirstIsCalledFirst holds for the pods that have the same limits, and
// all of them are gone by the time that the slowest limit needs for them.
func TestWhoCameFirstIsCalledFirst(t *testing.T) {
	t.Parallel()
	r := random(t)
	for world := range 40 {
		limits := []Limit{rate("a", 1+r.IntN(50), 1+r.IntN(5)), rate("b", 1+r.IntN(50), 1+r.IntN(5)), rate("c", 1+r.IntN(50), 1+r.IntN(5))}
		q, sets := NewQueue(), map[tracker.Key][]Limit{}
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
			order[fmt.Sprint(set)] = append(order[fmt.Sprint(set)], name)
			for _, limit := range set {
				inLine[limit.Policy]++
			}
			if goes(q, noon, name, set...) {
				went[name] = noon
			}
		}
		var longest time.Duration
		for _, limit := range limits {
			longest += time.Duration(inLine[limit.Policy]) * limit.interval()
		}
		for name, at := range drain(t, q, noon, func(k tracker.Key) []Limit { return sets[k] }) {
			went[name] = at
			require.LessOrEqual(t, at.Sub(noon), longest, "world %d", world)
		}
		for _, names := range order {
			require.True(t, slices.IsSortedFunc(names, func(a, b string) int { return went[a].Compare(went[b]) }), "world %d", world)
		}
	}
}
