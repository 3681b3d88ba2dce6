package evictor

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

const (
	// throttlePause is the least time between two halvings: many answers to requests
	// that were under way at once say one thing and not many.
	throttlePause = time.Second
	// longestThrottle bounds for how long one answer can stop all evictions.
	longestThrottle = 30 * time.Second
)

// throttle bounds how many attempts are under way at once. Each answer that the API
// server has too much to do halves the bound, and each that it accepts raises it a
// little (I01): so all workers slow down together, not only the one that was told. From
// one at a time it takes as many rounds of answers as there are workers until all work.
type throttle struct {
	local clock.WithTicker
	most  float64

	mu    sync.Mutex
	limit float64
	busy  int
	// until is when the API server wants to be asked again, halved when that was last
	// taken to heart.
	until, halved time.Time
	// waiting are told when there is room, the first first.
	waiting []chan struct{}
}

func newThrottle(most int, local clock.WithTicker) *throttle {
	return &throttle{local: local, most: float64(most), limit: float64(most)}
}

// enter waits until an attempt may begin, and reports false if ctx is done before. Who
// has entered must leave.
func (t *throttle) enter(ctx context.Context) bool {
	for {
		room, wait := t.try()
		if room == nil && wait <= 0 {
			return true
		}
		if !t.await(ctx, room, wait) {
			return false
		}
	}
}

// try enters if there is room, and returns otherwise what to wait for.
func (t *throttle) try() (room chan struct{}, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait := t.until.Sub(t.local.Now()); wait > 0 {
		return nil, wait
	}
	if float64(t.busy+1) <= t.limit {
		t.busy++
		return nil, 0
	}
	room = make(chan struct{})
	t.waiting = append(t.waiting, room)
	return room, 0
}

func (t *throttle) await(ctx context.Context, room <-chan struct{}, wait time.Duration) bool {
	var over <-chan time.Time
	if room == nil {
		timer := t.local.NewTimer(wait)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-ctx.Done():
		t.abandon(room)
		return false
	case <-room:
	case <-over:
	}
	return true
}

// abandon says that nobody waits for room any more. The throttle outlives who waits: what
// is told to one who is not there is told to nobody else.
func (t *throttle) abandon(room <-chan struct{}) {
	if room == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.waiting, func(waiting chan struct{}) bool { return waiting == room })
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		return
	}
	t.call()
}

// leave says that an attempt is over, whether the API server was asked in it to evict the
// pod, and what came of it. What was answered by nobody says nothing of how much it can
// take.
func (t *throttle) leave(asked bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	switch act.Classify(err) {
	case act.Throttled:
		t.slow(err)
	case act.NoFailure:
		if asked {
			t.limit = min(t.limit+1/t.limit, t.most)
		}
	case act.NotFound, act.Conflict, act.BudgetExceeded, act.TwoBudgets, act.Denied, act.Invalid, act.Timeout, act.Unavailable:
	}
	t.call()
}

// call tells those who wait of the room that there is; the caller holds the lock. Whoever
// waits looks again by itself: more than there is room for wait anew.
func (t *throttle) call() {
	for room := int(t.limit) - t.busy; room > 0 && len(t.waiting) > 0; room-- {
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}

// slow takes in that the API server has too much to do; the caller holds the lock.
func (t *throttle) slow(err error) {
	now := t.local.Now()
	if now.Sub(t.halved) >= throttlePause {
		t.halved = now
		t.limit = max(t.limit/2, 1)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		if until := now.Add(min(time.Duration(seconds)*time.Second, longestThrottle)); until.After(t.until) {
			t.until = until
		}
	}
}
