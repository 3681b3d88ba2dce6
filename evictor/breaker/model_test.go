package breaker

import (
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

// history is when pods went, and which limits stood when.
type history struct {
	mu   sync.Mutex
	went []time.Time
	// limits are what the limit was set to, and when.
	limits []limitAt
}

type limitAt struct {
	at   time.Time
	pods int
}

func (h *history) add() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.went = append(h.went, time.Now())
}

// worst returns the most pods by which a window saw more than the limit that stood when
// its last pod was given leave, which is less than grace ago.
func (h *history) worst(window, grace time.Duration) (over int, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.went, time.Time.Compare)
	over = -1 << 30
	for i := range h.went {
		end := h.went[i]
		from := end.Add(-window)
		first, _ := slices.BinarySearchFunc(h.went, from, func(t, x time.Time) int {
			if !t.After(x) {
				return -1
			}
			return 1
		})
		limit := 0
		for j, l := range h.limits {
			ended := j+1 < len(h.limits) && h.limits[j+1].at.Before(end.Add(-grace))
			if !ended && !l.at.After(end) {
				limit = max(limit, l.pods)
			}
		}
		if n := i + 1 - first - limit; n > over {
			over, at = n, end
		}
	}
	return over, at
}

// asking is a worker of the evictor: it asks, goes, and settles, until its time is over.
func asking(r *replica, random *rand.Rand, lock *sync.Mutex, end time.Time, h *history, names []string, idle time.Duration) {
	draw := func(n int64) time.Duration {
		lock.Lock()
		defer lock.Unlock()
		return time.Duration(random.Int64N(max(n, 1)))
	}
	for time.Now().Before(end) {
		answer := r.Ask(newUID(), r.policies(names...), cause)
		switch {
		case answer.Permit == nil && answer.Wait > 0:
			time.Sleep(answer.Wait)
		case answer.Permit == nil:
			time.Sleep(draw(int64(2 * idle)))
		default:
			attempt(answer.Permit, draw, h)
			time.Sleep(draw(int64(idle)))
		}
	}
}

// attempt is one that goes well, one that evicts nobody, one whose answer is lost, or
// one that nobody settles.
func attempt(permit *Permit, draw func(int64) time.Duration, h *history) {
	took := draw(int64(attemptTimeout)) / (1 + draw(10)*10)
	switch int(draw(10)) {
	case 0, 1: // refused, such as by a budget
		time.Sleep(took)
		permit.Settle(false)
	case 2: // the process is gone before the answer
		time.Sleep(took)
		h.add()
	case 3: // the answer comes long after the pod went
		h.add()
		time.Sleep(took)
		permit.Settle(true)
	default:
		time.Sleep(took)
		h.add()
		permit.Settle(true)
	}
}

// network returns faults at random: some requests are slow, some refused, and some are
// carried out, at once or late, and not answered.
func network(random *rand.Rand, lock *sync.Mutex, share int) func(bool) fault {
	return func(bool) fault {
		lock.Lock()
		defer lock.Unlock()
		f := fault{delay: time.Duration(random.Int64N(int64(30 * time.Millisecond)))}
		if random.IntN(100) >= share {
			return f
		}
		switch random.IntN(4) {
		case 0:
			f.refused = true
		case 1:
			f.lost = true
		case 2:
			f.lost, f.late = true, time.Duration(random.Int64N(int64(10*time.Second)))
		case 3:
			f.answer = time.Duration(random.Int64N(int64(2 * attemptTimeout)))
		}
		return f
	}
}

// rounds is how many random histories are tried; TOLLGATE_BREAKER_ROUNDS has more tried.
func rounds(t *testing.T) (first uint64, count int) {
	t.Helper()
	count = 8
	if text := os.Getenv("TOLLGATE_BREAKER_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		count = n
	}
	first = rand.Uint64() >> 32
	if text := os.Getenv("TOLLGATE_BREAKER_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		first, count = n, 1
	}
	return first, count
}

// TestJ05J06NoWindowSeesMoreThanTheLimit has replicas lead, crash and overlap at random,
// while the API server loses requests and answers, its clock is set back, the limit is
// changed and the breaker released. No window sees more pods go than the limit, and in
// the end whoever holds says so.
func TestJ05J06NoWindowSeesMoreThanTheLimit(t *testing.T) {
	first, count := rounds(t)
	total := 0
	for i := range count {
		total += round(t, first+uint64(i))
	}
	require.Positive(t, total, "nobody went at all")
	t.Logf("%d pods went in %d histories from seed %d on", total, count, first)
}

// round tries one history and returns how many pods went.
func round(t *testing.T, seed uint64) (went int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var lock sync.Mutex
		random := rand.New(rand.NewPCG(seed, 1))
		draw := func(n int) int { lock.Lock(); defer lock.Unlock(); return random.IntN(n) }
		window := []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute}[draw(4)]
		limit := []int{1, 2, 3, 10, 50, 400}[draw(6)]
		names := []string{"p"}
		h := &history{limits: []limitAt{{time.Now(), limit}}}
		s := newStore()
		s.change("p", bounded(int32(limit), window))
		if draw(2) == 0 {
			names = append(names, "second")
			s.change("second", bounded(int32(draw(30)+1), 5*window))
		}
		s.fault = network(random, &lock, []int{0, 10, 40}[draw(3)])
		end := time.Now().Add(max(3*window, 2*time.Minute))
		idle := time.Duration(1+draw(2000)) * time.Millisecond
		var back time.Duration // by how much the clock of the API server was set back
		var workers sync.WaitGroup
		lead := func() *replica {
			r := newReplica(s)
			r.ahead = time.Duration(draw(2000)-1000)*time.Millisecond - back
			r.lead(t)
			for range 1 + draw(6) {
				workers.Go(func() { asking(r, random, &lock, end, h, names, idle) })
			}
			return r
		}
		leading := []*replica{lead()}
		for time.Now().Before(end) {
			time.Sleep(time.Duration(1+draw(20_000)) * time.Millisecond)
			switch draw(8) {
			case 0, 1:
				leading = append(leading, lead())
			case 2, 3:
				if len(leading) > 1 {
					leading[0].retire(t)
					leading = leading[1:]
				} else {
					leading[0].retire(t)
					leading[0].lead(t)
				}
			case 4:
				limit := 1 + draw(60)
				s.change("p", bounded(int32(limit), window))
				h.mu.Lock()
				h.limits = append(h.limits, limitAt{time.Now(), limit})
				h.mu.Unlock()
			case 5:
				for _, r := range leading {
					r.locked(func() { r.held["uid of p"], r.live = draw(5), 1+draw(100) })
				}
			case 6:
				// Another writer: what it writes is not what a breaker counts.
				s.change("p", func(p *v1alpha1.EvictionPolicy) { p.Status.Held = int32(draw(9)) })
			case 7:
				by := time.Duration(1+draw(20_000)) * time.Millisecond
				back += by
				for _, r := range leading {
					r.locked(func() { r.ahead -= by })
				}
			}
		}
		workers.Wait()
		saysWhatItHolds(t, s, leading)
		for _, r := range leading {
			r.retire(t)
		}
		settle(time.Minute)
		// Leave that was given before a change may be used until it ends.
		over, at := h.worst(window, usableFor+2*attemptTimeout+skew)
		if over > 0 {
			t.Logf("limits %v", h.limits)
			for _, line := range s.trace {
				t.Log(line)
			}
			for _, at := range h.went {
				t.Logf("%s went", at.Format(time.TimeOnly+".000"))
			}
		}
		require.LessOrEqualf(t, over, 0, "seed %d: at %s too many had gone within %s", seed, at, window)
		require.LessOrEqual(t, s.most, 128, "the API takes no more grants")
		went = len(h.went)
	})
	return went
}

// saysWhatItHolds makes sure that each leader that holds finds that in the status, once
// the network is well and nobody asks any more.
func saysWhatItHolds(t *testing.T, s *store, leading []*replica) {
	t.Helper()
	s.mu.Lock()
	s.fault = nil
	s.mu.Unlock()
	for _, r := range leading {
		// More than fit into any limit: of a breaker that another leader releases this one
		// may hear as late as it reads the status again.
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
			require.GreaterOrEqual(t, gone, least, "what went is forgotten")
			require.LessOrEqual(t, gone, most, "what went long ago is counted")
			require.LessOrEqual(t, len(counted.grants), maxGrants)
		}
	}
}

// TestAnAnswerIsOneThing: whatever is asked, one field of the answer is set.
func TestAnAnswerIsOneThing(t *testing.T) {
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
		require.Equal(t, 1, one(r.Ask(newUID(), r.policies("p"), cause)), "nobody leads")
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
