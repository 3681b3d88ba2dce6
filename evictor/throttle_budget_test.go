package evictor

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestDoors(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(n int) tracker.Key { return tracker.Key{Namespace: "ns", Name: strconv.Itoa(n)} }
	all := func(tracker.Key) bool { return true }
	// full returns doors of which one has let in all that it lets in, from key 0, and has
	// as many waiting.
	full := func(t *testing.T, waiting int) *doors {
		t.Helper()
		d := newDoors()
		for i := range askedAtOnce + waiting {
			require.Equal(t, i < askedAtOnce, d.enter(now, "b", key(i)))
		}
		return d
	}

	t.Run("the next is told when one leaves, and nobody takes its place", func(t *testing.T) {
		t.Parallel()
		d := full(t, 2)
		require.False(t, d.enter(now, "b", key(askedAtOnce)), "asking again changes nothing")
		require.Equal(t, []tracker.Key{key(askedAtOnce)}, d.leave(now, "b", all))
		require.False(t, d.enter(now, "b", key(99)))
		require.False(t, d.enter(now, "b", key(askedAtOnce+1)))
		require.True(t, d.enter(now, "b", key(askedAtOnce)))
	})

	t.Run("a place is not kept for ever", func(t *testing.T) {
		t.Parallel()
		d := full(t, 2)
		require.Len(t, d.leave(now, "b", all), 1)
		late := now.Add(comesWithin + time.Nanosecond)
		require.Equal(t, []tracker.Key{key(askedAtOnce + 1)}, d.leave(late, "b", all)[:1])
		require.True(t, d.enter(late, "b", key(askedAtOnce)), "who comes late may find room all the same")
		require.False(t, d.enter(late, "b", key(99)))
	})

	t.Run("whoever need not leave any more is passed over", func(t *testing.T) {
		t.Parallel()
		d := full(t, 10)
		require.Equal(t, []tracker.Key{key(askedAtOnce + 9)}, d.leave(now, "b", func(k tracker.Key) bool { return k == key(askedAtOnce+9) }))
	})

	t.Run("budgets have nothing to do with each other", func(t *testing.T) {
		t.Parallel()
		d := full(t, 1)
		require.True(t, d.enter(now, "other", key(askedAtOnce)))
		require.Empty(t, d.leave(now, "other", all))
		require.Len(t, d.of, 1, "nothing is left of the other")
	})
}

// TestEverybodyComesThroughTheDoor has pods come, leave and stay away at random.
func TestEverybodyComesThroughTheDoor(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 100 {
		d, now := newDoors(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		wants, inside := map[tracker.Key]bool{}, 0
		pending := func(k tracker.Key) bool { return wants[k] }
		enter := func(k tracker.Key) {
			if wants[k] && d.enter(now, "b", k) {
				delete(wants, k)
				inside++
			}
		}
		for i := range 50 {
			wants[tracker.Key{Name: strconv.Itoa(i)}] = true
		}
		for k := range wants {
			enter(k)
		}
		for range 200 {
			require.LessOrEqual(t, inside, askedAtOnce)
			now = now.Add(time.Duration(r.Int64N(int64(comesWithin))))
			if inside == 0 {
				for k := range wants { // each looks again by itself sooner or later
					enter(k)
				}
				continue
			}
			inside--
			for _, k := range d.leave(now, "b", pending) {
				switch r.IntN(5) {
				case 0:
					delete(wants, k)
				case 1: // it comes too late
				default:
					enter(k)
				}
			}
		}
		require.Empty(t, wants)
		require.Zero(t, inside)
		now = now.Add(comesWithin + 1)
		require.True(t, d.enter(now, "other", tracker.Key{}))
		d.leave(now, "other", pending)
		require.Empty(t, d.of, "nothing is left")
	}
}

// crowdedBudget answers in 10 ms for pods without a budget, and in half a second for all
// others.
type crowdedBudget struct {
	mu             sync.Mutex
	asking, most   int
	free, budgeted []time.Time
}

func (c *crowdedBudget) Evict(_ context.Context, what act.Order) (act.Attempt, error) {
	if !what.Guarded {
		time.Sleep(10 * time.Millisecond)
		c.note(func() { c.free = append(c.free, time.Now()) })
		return act.Attempt{Outcome: act.Evicted, Sent: true}, nil
	}
	c.note(func() {
		c.asking++
		c.most = max(c.most, c.asking)
	})
	time.Sleep(500 * time.Millisecond)
	c.note(func() {
		c.asking--
		c.budgeted = append(c.budgeted, time.Now())
	})
	return act.Attempt{Outcome: act.Evicted, Sent: true}, nil
}

func (c *crowdedBudget) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

func TestG18ABudgetOfManyPodsSlowsDownNobodyElse(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*evictionSpec){
		"without a pace": byEviction,
		"at a pace": func(spec *evictionSpec) {
			byEviction(spec)
			paced(100, 10)(spec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				const pods = 100
				w.options.Workers = 8
				w.setPolicy(newPolicy("p", policy))
				w.start()
				w.allow("web", pods)
				api := &crowdedBudget{}
				w.evictor.effector = api
				for i := range 2 * pods {
					pod := newPod(podName(i), "n")
					if i < pods {
						pod = labelled(pod, "web")
					}
					w.setPod(pod)
				}
				began := time.Now()
				w.setNode("n", noExecute("gpu"))
				w.pass(time.Minute)
				api.note(func() {
					require.Len(t, api.free, pods)
					require.Less(t, slices.MaxFunc(api.free, time.Time.Compare).Sub(began), 3*time.Second)
					require.Len(t, api.budgeted, pods)
					require.Less(t, slices.MaxFunc(api.budgeted, time.Time.Compare).Sub(began), pods/askedAtOnce*500*time.Millisecond+5*time.Second)
					require.Equal(t, askedAtOnce, api.most)
				})
			})
		})
	}
}
