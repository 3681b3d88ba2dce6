package nodetaints

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// nodeRate is the number of nodes per second that a limiter admits.
	nodeRate  = 10
	nodeBurst = 20
)

// nodeLimiter limits the rate at which nodes are patched. A node that has to wait keeps
// its reservation, so that it is queued once and not after each other node.
type nodeLimiter struct {
	mu    sync.Mutex
	limit *rate.Limiter
	at    map[types.UID]time.Time
}

// reset removes all reservations.
func (t *nodeLimiter) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.at = rate.NewLimiter(nodeRate, nodeBurst), map[types.UID]time.Time{}
}

// take returns how long a node has to wait. Zero consumes its reservation.
func (t *nodeLimiter) take(uid types.UID, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, waits := t.at[uid]
	if !waits {
		at = now.Add(t.limit.ReserveN(now, 1).DelayFrom(now))
	}
	if wait := at.Sub(now); wait > 0 {
		t.at[uid] = at
		return wait
	}
	delete(t.at, uid)
	return 0
}

// remove removes the reservation of a node.
func (t *nodeLimiter) remove(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, uid)
}
