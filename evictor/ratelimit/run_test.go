package ratelimit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// crew is workers that evict those who are called, each in a while.
type crew struct {
	queue  *Queue
	clock  clock.WithTicker
	limits func(tracker.Key) []Limit
	// takes is how long an attempt lasts that begins then, and evicts what comes of it; nil
	// for always.
	takes  func(began time.Time) time.Duration
	evicts func(tracker.Key) bool
	wg     sync.WaitGroup

	mu    sync.Mutex
	asked int
	// left is when it was known of pods that they had left.
	left []time.Time
}

// each has every attempt last as long.
func each(d time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return d }
}

func (c *crew) wake(keys []tracker.Key) {
	for _, k := range keys {
		c.wg.Go(func() { c.work(k) })
	}
}

func (c *crew) work(k tracker.Key) {
	began := c.clock.Now()
	ok := c.queue.Ask(began, k, c.limits(k))
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	if !ok {
		return
	}
	// No channel of a timer: where that is due as it is asked for, which an attempt that takes
	// no time is, the race detector of Go 1.26 crashes within synctest, now and then.
	time.Sleep(c.takes(began))
	evicted, now := c.evicts == nil || c.evicts(k), c.clock.Now()
	c.queue.Leave(now, k, evicted)
	if evicted {
		c.mu.Lock()
		c.left = append(c.left, now)
		c.mu.Unlock()
	}
}

// run has pods leave for a time and returns the crew when all is over.
func run(t *testing.T, limit Limit, names []string, takes func(time.Time) time.Duration, lasts time.Duration, evicts func(tracker.Key) bool) *crew {
	t.Helper()
	c := &crew{
		queue: NewQueue(), clock: clock.RealClock{}, takes: takes, evicts: evicts,
		limits: func(tracker.Key) []Limit { return []Limit{limit} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.wg.Go(func() { c.queue.Run(ctx, c.clock, c.wake) })
	for _, name := range names {
		c.wake([]tracker.Key{key(name)})
	}
	time.Sleep(lasts)
	cancel()
	c.wg.Wait()
	return c
}

func TestRunCallsThoseWhoseTurnItIs(t *testing.T) {
	t.Parallel()

	t.Run("5,000 that wait are called one by one, at the pace and no more often than needed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			limit := rate("a", 200, 50)
			c := run(t, limit, pods("p", 5000), each(30*time.Millisecond), 20*time.Second, nil)
			requirePace(t, limit, c.left)
			require.InEpsilon(t, 50+20*200, len(c.left), 0.1)
			require.Less(t, c.asked, 5000+len(c.left)+100, "once to join and once when called")
		})
	})

	t.Run("the pace is kept when every other pod is blocked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			limit := rate("a", 100, 20)
			c := run(t, limit, pods("p", 4000), each(10*time.Millisecond), 15*time.Second, func(k tracker.Key) bool { return k.Name[len(k.Name)-1]%2 == 0 })
			requirePace(t, limit, c.left)
			require.InEpsilon(t, 15*100, len(c.left), 0.1)
		})
	})

	t.Run("I03 an outage is followed by the pace, and not by all who hung in it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			limit := rate("a", 50, 30)
			gone := time.Now().Add(2 * time.Second)
			back := gone.Add(10 * time.Second)
			c := run(t, limit, pods("p", 2000), func(began time.Time) time.Duration {
				if began.Before(gone) || !began.Before(back) {
					return 20 * time.Millisecond
				}
				return back.Sub(began)
			}, 32*time.Second, nil)
			requirePace(t, limit, c.left)
			late := 0
			for _, at := range c.left {
				require.False(t, at.After(gone.Add(20*time.Millisecond)) && at.Before(back))
				if !at.Before(back) {
					late++
				}
			}
			require.InEpsilon(t, 30+20*50, late, 0.05, "it is kept from the first moment")
		})
	})

	t.Run("attempts that last longer than a burst at the pace are one burst at a time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			limit := rate("a", 100, 5)
			c := run(t, limit, pods("p", 2000), each(250*time.Millisecond), 20*time.Second, nil)
			requirePace(t, limit, c.left)
			require.InEpsilon(t, 20*5*4, len(c.left), 0.1)
		})
	})

	t.Run("PF3 what is not paced is not slowed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			limit := rate("a", 10_000, 10_000)
			c := run(t, limit, pods("p", 5000), each(0), time.Millisecond, nil)
			require.Len(t, c.left, 5000)
		})
	})

	t.Run("nobody does anything while nobody waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := run(t, rate("a", 1, 1), nil, each(0), time.Hour, nil)
			require.Zero(t, c.asked)
		})
	})
}

func TestQueueIsSafeForManyWorkers(t *testing.T) {
	t.Parallel()
	q := NewQueue()
	limits := []Limit{rate("a", 10_000, 100), rate("b", 10_000, 100)}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i, name := range pods(string(rune('a'+worker)), 300) {
				now := after(time.Duration(i) * time.Millisecond)
				switch {
				case q.Ask(now, key(name), limits[i%2:]):
					q.Leave(now, key(name), i%3 == 0)
				case i%5 == 0:
					q.Leave(now, key(name), false)
				case i%7 == 0:
					q.StepAside(now, key(name))
					if q.Ask(now, key(name), limits[i%2:]) {
						q.Leave(now, key(name), true)
					}
				}
				q.Next(now)
				if i%50 == 0 {
					q.Update(now, limits[:1+i%2])
				}
				q.Len()
			}
		})
	}
	wg.Wait()
	for range q.Len() {
		called, _ := q.Next(after(time.Minute))
		for _, k := range called {
			q.Leave(after(time.Minute), k, false)
		}
	}
	require.Zero(t, q.Len())
}
