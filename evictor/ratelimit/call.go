package ratelimit

import (
	"container/heap"
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// answersWithin is for how long tokens are kept for a pod that was called. One that
	// does not ask by then has lost its place: it is gone, or the workers are busy.
	answersWithin = 5 * time.Second
	// shortestSleep bounds how often pods are called.
	shortestSleep = time.Millisecond
)

// Next calls the pods whose turn it is and returns those that were called since the
// last time. They have to ask now. In is when to come again if nothing happens, and
// waiting is false when there is nobody to come for.
func (l *Lines) Next(now time.Time) (called []tracker.Key, in time.Duration, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in = l.call(now)
	for _, w := range l.untold {
		if l.stillCalled(w) {
			called = append(called, w.key)
		}
	}
	l.untold = nil
	l.tidy(now)
	return called, max(in, shortestSleep), len(l.pods) > 0
}

// Run calls pods until ctx ends. Wake is told whom, must not block, and may call the
// methods of l.
func (l *Lines) Run(ctx context.Context, clk clock.WithTicker, wake func(keys []tracker.Key)) {
	for {
		called, in, waiting := l.Next(clk.Now())
		if len(called) > 0 {
			wake(called)
		}
		if !l.sleep(ctx, clk, in, waiting) {
			return
		}
	}
}

// sleep returns false when ctx has ended.
func (l *Lines) sleep(ctx context.Context, clk clock.WithTicker, in time.Duration, waiting bool) bool {
	var due <-chan time.Time
	if waiting {
		timer := clk.NewTimer(in)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-l.changed:
	}
	return true
}

// promise is a group whose first pod cannot go yet, and when it can.
type promise struct {
	group *group
	in    time.Duration
}

// call calls all whose turn it is, those who came first before others, and returns when
// it is the turn of the next.
func (l *Lines) call(now time.Time) time.Duration {
	next := l.lapse(now)
	var promises []promise
	for g := l.first(promises); g != nil; g = l.first(promises) {
		in := g.wait(now)
		if in == 0 && !delaysAny(now, g, promises) {
			l.callFirst(now, g)
			next = min(next, answersWithin)
			continue
		}
		promises = append(promises, promise{group: g, in: in})
		if in > 0 {
			next = min(next, in)
		}
	}
	return next
}

func delaysAny(now time.Time, g *group, promises []promise) bool {
	for _, p := range promises {
		if g.delays(now, p.group, p.in) {
			return true
		}
	}
	return false
}

// first returns, of the groups to which nothing was promised, the one whose first pod
// came first; nil if nobody waits in any.
func (l *Lines) first(promises []promise) *group {
	var first *group
	for _, g := range l.groups {
		if len(g.waiting) == 0 || promised(promises, g) {
			continue
		}
		if first == nil || g.waiting[0].arrival < first.waiting[0].arrival {
			first = g
		}
	}
	return first
}

func promised(promises []promise, g *group) bool {
	for _, p := range promises {
		if p.group == g {
			return true
		}
	}
	return false
}

// callFirst calls the first pod of a group and keeps tokens for it.
func (l *Lines) callFirst(now time.Time, g *group) {
	w := g.waiting[0]
	heap.Remove(&g.waiting, 0)
	w.reserved = true
	g.reserve(1)
	l.summon(now, w)
}

func (l *Lines) summon(now time.Time, w *waiter) {
	w.called = now
	l.calls, l.untold = append(l.calls, w), append(l.untold, w)
}

// recall has a pod that was called wait again, in its old place.
func (l *Lines) recall(w *waiter) {
	if w.reserved {
		w.group.reserve(-1)
		w.reserved = false
	}
	w.group.push(w)
}

// stillCalled reports whether a pod was called and has not come, left, or been told to
// wait again.
func (l *Lines) stillCalled(w *waiter) bool {
	return l.pods[w.key] == w && w.place < 0
}

// lapse takes those out who were called and did not come, and returns when that may be
// due again.
func (l *Lines) lapse(now time.Time) time.Duration {
	for len(l.calls) > 0 {
		w := l.calls[0]
		if l.stillCalled(w) {
			if left := answersWithin - now.Sub(w.called); left > 0 {
				return min(left, answersWithin)
			}
			l.remove(w)
		}
		l.calls[0] = nil
		l.calls = l.calls[1:]
	}
	l.calls = nil
	return answersWithin
}

// dissolve calls all pods that stand in a line that is no more.
func (l *Lines) dissolve(now time.Time, closed map[*bucket]struct{}) {
	for name, g := range l.groups {
		if !g.in(closed) {
			continue
		}
		delete(l.groups, name)
		for len(g.waiting) > 0 {
			w, _ := heap.Pop(&g.waiting).(*waiter)
			l.summon(now, w)
		}
	}
}

func (g *group) in(buckets map[*bucket]struct{}) bool {
	for _, b := range g.buckets {
		if _, in := buckets[b]; in {
			return true
		}
	}
	return false
}

// tidy forgets lines that are as if they were new and in which nobody stands.
func (l *Lines) tidy(now time.Time) {
	used := map[*bucket]struct{}{}
	for _, g := range l.groups {
		for _, b := range g.buckets {
			used[b] = struct{}{}
		}
	}
	for policy, b := range l.buckets {
		if _, in := used[b]; !in && b.idle(now) {
			delete(l.buckets, policy)
		}
	}
}
