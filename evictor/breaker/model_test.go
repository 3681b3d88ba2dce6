package breaker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// history records when pods left and which limits were set.
type history struct {
	mu     sync.Mutex
	left   []time.Time
	limits []limitAt
	// waiting are pods that ask again: they were held, or their attempt had no answer.
	waiting []duePod
}

// limitAt is a limit and the time at which it was set.
type limitAt struct {
	at   time.Time
	pods int
}

// duePod is a pod that asks for a permit. A pod whose answer was lost asks even if it has left.
type duePod struct {
	uid  types.UID
	left bool
}

// next returns a new pod, or one that asks again.
func (h *history) next(again bool) duePod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !again || len(h.waiting) == 0 {
		return duePod{uid: newUID()}
	}
	pod := h.waiting[0]
	h.waiting = h.waiting[1:]
	return pod
}

func (h *history) askAgain(pod duePod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, pod)
}

// leave records that a pod leaves now, if it has not left before.
func (h *history) leave(pod *duePod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !pod.left {
		h.left = append(h.left, time.Now())
	}
	pod.left = true
}

func (h *history) setLimit(pods int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limits = append(h.limits, limitAt{time.Now(), pods})
}

// excess returns by how many pods a window exceeds the limit at most, and when that window ends. The limit
// of a window is the highest that was in force within grace before its end.
func (h *history) excess(window, grace time.Duration) (excess int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.left, time.Time.Compare)
	excess, first := math.MinInt, 0
	for i, end := range h.left {
		for !h.left[first].After(end.Add(-window)) {
			first++
		}
		limit := 0
		for j, l := range h.limits {
			replaced := j+1 < len(h.limits) && h.limits[j+1].at.Before(end.Add(-grace))
			if !replaced && !l.at.After(end) {
				limit = max(limit, l.pods)
			}
		}
		if n := i + 1 - first - limit; n > excess {
			excess, at = n, end
		}
	}
	return excess, at
}

// random is a source of numbers for several goroutines.
type random struct {
	mu     sync.Mutex
	source *rand.Rand
}

func newRandom(seed, stream uint64) *random {
	return &random{source: rand.New(rand.NewPCG(seed, stream))}
}

// number returns a number from 0 to n-1.
func (r *random) number(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.IntN(n)
}

// duration returns a duration below d.
func (r *random) duration(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.source.Int64N(max(int64(d), 1)))
}

// evict asks for permits as a worker of the evictor does, and makes an attempt with each, until a time.
func (r *replica) evict(random *random, until time.Time, h *history, names []string, idle time.Duration) {
	pod := h.next(false)
	for time.Now().Before(until) {
		answer := r.Ask(pod.uid, r.policies(names...), cause)
		switch {
		case answer.Permit == nil && answer.Wait > 0:
			time.Sleep(answer.Wait)
			continue
		case answer.Permit == nil:
			time.Sleep(random.duration(2 * idle))
			if random.number(2) == 0 {
				h.askAgain(pod)
			}
		default:
			attempt(answer.Permit, random, h, pod)
			time.Sleep(random.duration(idle))
		}
		pod = h.next(random.number(2) == 0)
	}
}

// attempt makes an attempt that works, is refused, has no answer or is not settled.
func attempt(permit *Permit, random *random, h *history, pod duePod) {
	takes := random.duration(attemptTimeout) / time.Duration(1+10*random.number(10))
	switch random.number(13) {
	case 0, 1: // It is refused, such as by a budget.
		time.Sleep(takes)
		permit.Settle(false)
	case 2: // The process ends before the answer.
		time.Sleep(takes)
		h.leave(&pod)
	case 3: // The answer arrives long after the pod left.
		h.leave(&pod)
		time.Sleep(takes)
		permit.Settle(true)
	case 4, 5: // The request is lost.
		time.Sleep(takes)
		permit.Settle(true)
		h.askAgain(pod)
	case 6: // The answer is lost.
		h.leave(&pod)
		time.Sleep(takes)
		permit.Settle(true)
		h.askAgain(pod)
	default:
		time.Sleep(takes)
		h.leave(&pod)
		permit.Settle(true)
	}
}

// network returns random faults for a share of all requests, in percent: they are refused, have no answer and
// are carried out at once or late, or are answered late.
func network(random *random, share int) func(bool) fault {
	return func(bool) fault {
		f := fault{delay: random.duration(30 * time.Millisecond)}
		if random.number(100) >= share {
			return f
		}
		switch random.number(4) {
		case 0:
			f.refused = true
		case 1:
			f.lost = true
		case 2:
			f.lost, f.late = true, random.duration(10*time.Second)
		case 3:
			f.answer = random.duration(2 * attemptTimeout)
		}
		return f
	}
}

// histories returns the seeds of the histories that a test plays. TOLLGATE_BREAKER_ROUNDS is their number, and
// TOLLGATE_BREAKER_SEED the first of them.
func histories(t *testing.T) []uint64 {
	t.Helper()
	number := func(variable string, otherwise uint64) uint64 {
		text := os.Getenv(variable)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		return n
	}
	first := number("TOLLGATE_BREAKER_SEED", rand.Uint64()>>32)
	var seeds []uint64
	for i := range number("TOLLGATE_BREAKER_ROUNDS", 8) {
		seeds = append(seeds, first+i)
	}
	return seeds
}

// TestJ05J06NoWindowHasMoreEvictionsThanTheLimit has replicas lead, crash and overlap, while requests and answers
// are lost, the clock of the API server is set back, the limit is changed and breakers are released. Pods
// whose answer was lost ask again.
func TestJ05J06NoWindowHasMoreEvictionsThanTheLimit(t *testing.T) {
	total := 0
	for _, seed := range histories(t) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { total += playHistory(t, seed) })
	}
	t.Logf("%d pods left", total)
}

// playHistory plays a history and returns how many pods left.
func playHistory(t *testing.T, seed uint64) (left int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random := newRandom(seed, 1)
		window := []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute}[random.number(4)]
		limit := []int{1, 2, 3, 10, 50, 400}[random.number(6)]
		names, h, s := []string{"p"}, &history{}, newStore()
		s.change("p", bounded(int32(limit), window))
		h.setLimit(limit)
		if random.number(2) == 0 {
			names = append(names, "second")
			s.change("second", bounded(int32(random.number(30)+1), 5*window))
		}
		s.fault = network(random, []int{0, 10, 40}[random.number(3)])
		end := time.Now().Add(max(3*window, 2*time.Minute))
		idle := time.Duration(1+random.number(2000)) * time.Millisecond
		var back time.Duration // It is by how much the clock of the API server was set back.
		var workers sync.WaitGroup
		lead := func() *replica {
			r := newReplica(s)
			r.ahead = random.duration(2*time.Second) - time.Second - back
			r.lead(t)
			for range 1 + random.number(6) {
				workers.Go(func() { r.evict(random, end, h, names, idle) })
			}
			return r
		}
		leading := []*replica{lead()}
		for time.Now().Before(end) {
			time.Sleep(time.Millisecond + random.duration(20*time.Second))
			switch random.number(8) {
			case 0, 1:
				leading = append(leading, lead())
			case 2, 3:
				leading[0].retire(t)
				if len(leading) > 1 {
					leading = leading[1:]
				} else {
					leading[0].lead(t)
				}
			case 4:
				limit := 1 + random.number(60)
				s.change("p", bounded(int32(limit), window))
				h.setLimit(limit)
			case 5:
				for _, r := range leading {
					r.locked(func() { r.held["uid of p"], r.live = random.number(5), 1+random.number(100) })
				}
			case 6: // Another writer writes a status that no breaker counts.
				s.change("p", func(p *v1alpha1.EvictionPolicy) { p.Status.Held = int32(random.number(9)) })
			case 7:
				by := random.duration(20 * time.Second)
				back += by
				for _, r := range leading {
					r.locked(func() { r.ahead -= by })
				}
			}
		}
		workers.Wait()
		requireTripsInStatus(t, s, leading)
		for _, r := range leading {
			r.retire(t)
		}
		settle(time.Minute)
		// Permits that were granted before a change are used until their grant ends.
		excess, at := h.excess(window, usableFor+2*attemptTimeout+skew)
		if excess > 0 {
			t.Logf("limits %v", h.limits)
			for _, line := range s.trace {
				t.Log(line)
			}
			for _, at := range h.left {
				t.Logf("%s a pod left", at.Format(time.TimeOnly+".000"))
			}
		}
		require.LessOrEqualf(t, excess, 0, "too many pods left within %s before %s", window, at)
		require.LessOrEqual(t, s.most, 128, "the API takes no more grants")
		left = len(h.left)
	})
	return left
}

// requireTripsInStatus requires that each breaker that holds pods is tripped in the status of its policy, once
// requests are answered again and no pods ask.
func requireTripsInStatus(t *testing.T, s *store, leading []*replica) {
	t.Helper()
	s.mu.Lock()
	s.fault = nil
	s.mu.Unlock()
	for _, r := range leading {
		// So many pods fit into no limit: a leader reads late that another one has released a breaker.
		r.locked(func() { r.held = map[types.UID]int{"uid of p": 1000, "uid of second": 1000} })
	}
	settle(time.Minute)
	for _, r := range leading {
		for _, name := range r.holding() {
			b := s.status(name).Breaker
			require.NotNil(t, b, name)
			require.NotNil(t, b.Tripped, name)
		}
	}
}

// TestGrantsOfAState compares the pods that a state counts with a list of all pods.
func TestGrantsOfAState(t *testing.T) {
	random := seeded(t, rand.Uint64())
	for range 50 {
		window := time.Duration(10+random.IntN(1000)) * time.Second
		begun := time.Unix(1_800_000_000, 0)
		now, counted := begun, state{}
		type pods struct {
			end time.Time
			n   int
		}
		var all []pods
		for range random.IntN(300) {
			now = now.Add(time.Duration(random.Int64N(int64(window) / 20)))
			end := now.Add(time.Duration(random.Int64N(int64(10 * time.Second)))).Truncate(time.Microsecond)
			n := 1 + random.IntN(20)
			counted.add(grant{until: end, end: end, pods: n})
			counted.coalesce(window)
			all = append(all, pods{end, n})
			if random.IntN(4) == 0 {
				i := random.IntN(len(all))
				if back := random.IntN(all[i].n + 1); !over(all[i].end, now, window) && back > 0 {
					counted.giveBack(all[i].end, back)
					all[i].n -= back
				}
			}
			if random.IntN(3) == 0 {
				if status := counted.status(); status != nil {
					counted = stateOf(status, now, now)
				}
				counted = counted.since(now, window)
			}
			least, most := 0, 0
			for _, p := range all {
				if !over(p.end, now, window) {
					least += p.n
				}
				if !over(p.end, now.Add(-window/2), window) {
					most += p.n
				}
			}
			inWindow := counted.since(now, window)
			gone := inWindow.pods()
			require.GreaterOrEqual(t, gone, least, "pods of the window are not counted")
			require.LessOrEqual(t, gone, most, "pods that left long ago are counted")
			require.LessOrEqual(t, len(counted.grants), maxGrants)
		}
	}
}

func TestOneFieldOfAnAnswerIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.change("p", bounded(2, 10*time.Second))
		s.change("free", func(*v1alpha1.EvictionPolicy) {})
		r := newReplica(s)
		one := func(a Answer) int {
			n := 0
			for _, set := range []bool{a.Permit != nil, a.HeldBy != nil, a.Wait != 0} {
				if set {
					n++
				}
			}
			return n
		}
		require.Equal(t, 1, one(r.Ask(newUID(), r.policies("p"), cause)), "no replica leads")
		r.lead(t)
		for range 100 {
			for _, policies := range [][]*eviction.Policy{nil, r.policies("free"), r.policies("p"), r.policies("p", "free")} {
				require.Equal(t, 1, one(r.Ask(newUID(), policies, cause)))
			}
			time.Sleep(20 * time.Millisecond)
		}
		r.retire(t)
	})
}
