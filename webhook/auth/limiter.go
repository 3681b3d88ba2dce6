package auth

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// BusyError says that a question was not put, because it could not be answered in time:
// too many questions of its namespace, or of all namespaces, are in line.
type BusyError struct {
	// Namespace is that of the request that led to the question; empty for a request
	// outside of namespaces.
	Namespace string
	// Wait is the time until it would have been the question's turn.
	Wait time.Duration
}

// Error implements error. It names nothing that the user of the request does not know.
func (e *BusyError) Error() string {
	of := "of requests outside of namespaces"
	if e.Namespace != "" {
		of = fmt.Sprintf("of namespace %.63q", e.Namespace)
	}
	return fmt.Sprintf("too many questions about permissions %s are in line for the API server (the wait is %s); try again later",
		of, e.Wait.Round(time.Millisecond))
}

// share is the part of the total rate that each namespace has. reserve is the part of the
// burst that questions beyond the share leave to questions of other namespaces within theirs,
// so that the latter do not wait.
const (
	share   = 0.2
	reserve = 0.5
	// sharesKept is the number of namespaces whose shares are remembered, and shareKept for
	// how long; a share is whole again by then, unless the burst is for more than that.
	sharesKept = 1024
	shareKept  = time.Minute
)

// fairLimiter admits questions to the API server within a rate and a number at one time. The
// questions of each namespace stand in a line of their own, and the lines take turns: a
// namespace with many questions waits for itself, and not the others for it. It is safe for
// concurrent use.
type fairLimiter struct {
	clock clock.Clock
	rate  *rate.Limiter
	// kept are the tokens of the rate that are for questions within a share.
	kept float64

	mu sync.Mutex
	// shares are the limiters of namespaces.
	shares *cache.LRUExpireCache
	// free is the number of questions that may be put beside those under way.
	free int
	// waiting are the questions in line by namespace, and order the namespaces that have
	// some, the next one first.
	waiting map[string][]*reservation
	order   []string
	// wakes is when a timer looks for questions to admit; zero where none is set.
	wakes time.Time
}

// reservation is the place of one question in line.
type reservation struct {
	admitted chan struct{}
	// needs is how many tokens of the rate have to be there; it takes one of them.
	needs float64
}

func newFairLimiter(limits AuthorityLimits, now clock.Clock) *fairLimiter {
	return &fairLimiter{
		clock: now, rate: rate.NewLimiter(rate.Limit(limits.PerSecond), limits.Burst), kept: float64(int(reserve * float64(limits.Burst))),
		shares: cache.NewLRUExpireCacheWithClock(sharesKept, now), free: atOnce, waiting: map[string][]*reservation{},
	}
}

// wait returns when it is the turn of a question of a namespace, which then has to call done. It
// returns a BusyError at once if that would take as long as within, or longer.
func (l *fairLimiter) wait(ctx context.Context, namespace string, within time.Duration) error {
	r := &reservation{admitted: make(chan struct{}), needs: 1}
	l.mu.Lock()
	if !l.inShare(namespace) {
		r.needs += l.kept
	}
	// Before this question come those of its own line, and from each other line no more than there
	// are in its own.
	own := len(l.waiting[namespace])
	ahead := own
	for other, line := range l.waiting {
		if other != namespace {
			ahead += min(len(line), own+1)
		}
	}
	if wait := l.until(float64(ahead) + r.needs); wait > 0 && wait >= within {
		l.mu.Unlock()
		return &BusyError{Namespace: namespace, Wait: wait}
	}
	if own == 0 {
		l.order = append(l.order, namespace)
	}
	l.waiting[namespace] = append(l.waiting[namespace], r)
	l.admit()
	l.mu.Unlock()
	select {
	case <-r.admitted:
		return nil
	case <-ctx.Done():
		l.abandon(namespace, r)
		return fmt.Errorf("wait to review access: %w", context.Cause(ctx))
	}
}

// done ends a question that was admitted.
func (l *fairLimiter) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	l.admit()
}

// inShare takes a question out of the share of its namespace, and reports whether there was
// room for it.
func (l *fairLimiter) inShare(namespace string) bool {
	of, ok := l.shares.Get(namespace)
	if !ok {
		of = rate.NewLimiter(share*l.rate.Limit(), max(1, int(share*float64(l.rate.Burst()))))
	}
	l.shares.Add(namespace, of, shareKept)
	return of.(*rate.Limiter).AllowN(l.clock.Now(), 1) //nolint:forcetypeassert // Nothing else is in there.
}

// until returns the time until the rate has so many tokens.
func (l *fairLimiter) until(tokens float64) time.Duration {
	missing := tokens - l.rate.TokensAt(l.clock.Now())
	return max(0, time.Duration(math.Ceil(missing/float64(l.rate.Limit())*float64(time.Second))))
}

// admit lets in as many questions as there is room for, one of each line in turn. A line whose
// first question needs more tokens than there are is passed over.
func (l *fairLimiter) admit() {
	for passed := 0; l.free > 0 && passed < len(l.order); {
		namespace := l.order[0]
		first, rest := l.waiting[namespace][0], l.waiting[namespace][1:]
		if delay := l.until(first.needs); delay > 0 {
			l.wakeAfter(delay)
			passed++
			l.order = append(l.order[1:], namespace)
			continue
		}
		passed = 0
		l.rate.AllowN(l.clock.Now(), 1)
		l.free--
		close(first.admitted)
		l.order = l.order[1:]
		if len(rest) == 0 {
			delete(l.waiting, namespace)
			continue
		}
		l.waiting[namespace] = rest
		l.order = append(l.order, namespace)
	}
}

// wakeAfter looks again for questions to admit, in a while at the latest.
func (l *fairLimiter) wakeAfter(delay time.Duration) {
	at := l.clock.Now().Add(delay)
	if !l.wakes.IsZero() && !at.Before(l.wakes) {
		return
	}
	l.wakes = at
	timer := l.clock.NewTimer(delay)
	go func() {
		<-timer.C()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wakes = time.Time{}
		l.admit()
	}()
}

// abandon takes a question out of its line, or gives back its place if it was admitted
// meanwhile.
func (l *fairLimiter) abandon(namespace string, r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.waiting[namespace]
	at := slices.Index(line, r)
	if at < 0 {
		l.free++
		l.admit()
		return
	}
	if len(line) > 1 {
		l.waiting[namespace] = slices.Delete(line, at, at+1)
		return
	}
	delete(l.waiting, namespace)
	l.order = slices.DeleteFunc(l.order, func(one string) bool { return one == namespace })
}
