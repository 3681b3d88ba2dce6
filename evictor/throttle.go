package evictor

import (
	"context"
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
	// room wakes those that wait until less attempts are under way.
	room *sync.Cond
}

func newThrottle(most int, local clock.WithTicker) *throttle {
	t := &throttle{local: local, most: float64(most), limit: float64(most)}
	t.room = sync.NewCond(&t.mu)
	return t
}

// enter waits until an attempt may begin, and reports false if ctx is done before. leave follows if it
// may.
func (t *throttle) enter(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.room.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	for ctx.Err() == nil {
		switch pause := t.until.Sub(t.local.Now()); {
		case pause > 0:
			t.sleep(ctx, pause)
		case float64(t.busy+1) <= t.limit:
			t.busy++
			return true
		default:
			t.room.Wait()
		}
	}
	t.room.Signal() // The room that this one was woken for is for the next.
	return false
}

// sleep waits without the lock, which the caller holds.
func (t *throttle) sleep(ctx context.Context, pause time.Duration) {
	t.mu.Unlock()
	defer t.mu.Lock()
	timer := t.local.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// leave says that an attempt is over, whether the API server was asked in it to evict the
// pod, and what came of it. What was answered by nobody says nothing of how much it can
// take.
func (t *throttle) leave(asked bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	switch {
	case act.Classify(err) == act.Throttled:
		t.slow(err)
	case err == nil && asked:
		t.limit = min(t.limit+1/t.limit, t.most)
	}
	for range int(t.limit) - t.busy {
		t.room.Signal()
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
