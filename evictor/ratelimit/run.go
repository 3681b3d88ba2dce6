package ratelimit

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// answersWithin is how long a pod that was called holds its tokens without asking. After
	// that it loses its place: it does not exist any more, or the workers are busy.
	answersWithin = 5 * time.Second
	// shortestSleep bounds how often pods are called.
	shortestSleep = time.Millisecond
)

// Run calls pods until ctx ends. It passes them to wake, which must not block, and may use
// the methods of q.
func (q *Queue) Run(ctx context.Context, clk clock.WithTicker, wake func(keys []tracker.Key)) {
	for ctx.Err() == nil {
		keys, in := q.Next(clk.Now())
		if len(keys) > 0 {
			wake(keys)
		}
		q.sleep(ctx, clk, in)
	}
}

// sleep returns when ctx has ended, the queue has changed, or a time other than zero has
// passed.
func (q *Queue) sleep(ctx context.Context, clk clock.WithTicker, in time.Duration) {
	var due <-chan time.Time
	if in > 0 {
		timer := clk.NewTimer(in)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-q.changed:
	}
}

// Next calls the pods that may go and returns those that were called since the last time.
// They have to ask now. In is when to call Next again if the queue does not change before
// that: zero for never, when no pod waits.
func (q *Queue) Next(now time.Time) (keys []tracker.Key, in time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	in = q.call(now)
	for _, e := range q.untold {
		if e.state == called {
			keys = append(keys, e.key)
		}
	}
	q.untold = nil
	if in == 0 {
		q.groups = nil
		// Buckets are removed that equal new ones.
		maps.DeleteFunc(q.buckets, func(_ types.UID, b *bucket) bool { return b.held == 0 && b.lack(now) == 0 })
	}
	return keys, in
}

// call calls all pods that may go, in the order of arrival. A pod that has to wait is passed
// only by pods that do not delay it. Call returns when it is needed again; zero for never,
// when no pod waits.
func (q *Queue) call(now time.Time) time.Duration {
	next := q.expire(now)
	blocked := map[*group]time.Duration{}
	for g := q.first(blocked); g != nil; g = q.first(blocked) {
		in := g.wait(now)
		if in == 0 && !g.delays(now, blocked) {
			e := g.waiting[0]
			g.drop(e)
			e.state, e.called = called, now
			for _, b := range g.buckets {
				b.held++
			}
			q.calls, q.untold = append(q.calls, e), append(q.untold, e)
			continue
		}
		blocked[g] = in
		if in > 0 {
			next = min(next, in)
		}
	}
	if len(blocked)+len(q.calls) == 0 {
		return 0
	}
	return max(next, shortestSleep)
}

// first returns the group that is not blocked whose first pod arrived first, nil for none.
func (q *Queue) first(blocked map[*group]time.Duration) (first *group) {
	for _, g := range q.groups {
		_, ok := blocked[g]
		if !ok && len(g.waiting) > 0 && (first == nil || g.waiting[0].arrival < first.waiting[0].arrival) {
			first = g
		}
	}
	return first
}

// expire removes the pods that were called and did not ask in time. It returns when this
// has to be done again.
func (q *Queue) expire(now time.Time) time.Duration {
	for len(q.calls) > 0 {
		e := q.calls[0]
		if e.state == called {
			if left := answersWithin - now.Sub(e.called); left > 0 {
				return min(left, answersWithin)
			}
			q.remove(now, e, false)
		}
		q.calls = q.calls[1:]
	}
	return answersWithin
}
