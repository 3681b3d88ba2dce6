package evictor

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/decide"
)

const (
	// throttlePause is the minimum time between two halvings: many answers to concurrent
	// requests are one signal.
	throttlePause = time.Second
	// longestThrottle is the maximum time for which one answer can stop all evictions.
	longestThrottle = 30 * time.Second
)

// throttle bounds the number of concurrent attempts. Each answer of 429 halves the limit, and each
// success raises it a little (I01), so that all workers slow down together. From a limit of one,
// it takes as many rounds of answers as there are workers until all work again.
type throttle struct {
	local clock.WithTicker
	most  float64

	mu    sync.Mutex
	limit float64
	busy  int
	// until is the end of the Retry-After of the API server, and halved the time of the last
	// halving.
	until, halved time.Time
	// room wakes the goroutines that wait for an attempt to end.
	room *sync.Cond
}

func newThrottle(most int, local clock.WithTicker) *throttle {
	t := &throttle{local: local, most: float64(most), limit: float64(most)}
	t.room = sync.NewCond(&t.mu)
	return t
}

// enter waits until an attempt may begin, and returns false if ctx is done before. After true, the
// caller must call leave.
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
	t.room.Signal() // The next goroutine may begin in place of this one.
	return false
}

// sleep waits without the lock, which the caller holds.
func (t *throttle) sleep(ctx context.Context, pause time.Duration) {
	t.mu.Unlock()
	defer t.mu.Lock()
	select {
	case <-ctx.Done():
	case <-t.local.After(pause):
	}
}

// leave ends an attempt. asked says whether the API server was asked to evict the pod: an attempt
// without that request says nothing about the load of the API server.
func (t *throttle) leave(asked bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	switch {
	case act.Classify(err) == act.Throttled:
		now := t.local.Now()
		if now.Sub(t.halved) >= throttlePause {
			t.halved = now
			t.limit = max(t.limit/2, 1)
		}
		seconds, _ := apierrors.SuggestsClientDelay(err) // Zero if the answer has no Retry-After.
		t.until = decide.Later(t.until, now.Add(min(time.Duration(seconds)*time.Second, longestThrottle)))
	case err == nil && asked:
		t.limit = min(t.limit+1/t.limit, t.most)
	}
	for range int(t.limit) - t.busy {
		t.room.Signal()
	}
}
