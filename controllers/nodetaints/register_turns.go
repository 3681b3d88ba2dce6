package nodetaints

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// These bound how fast nodes are tainted.
	nodeRate  = 10
	nodeBurst = 20
)

// turns bounds how fast nodes are worked on. A node that has been told when its turn is
// keeps it, so that it is woken once and not whenever another one is done.
type turns struct {
	mu    sync.Mutex
	limit *rate.Limiter
	at    map[types.UID]time.Time
}

// reset forgets all nodes.
func (t *turns) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.at = rate.NewLimiter(nodeRate, nodeBurst), map[types.UID]time.Time{}
}

// take returns for how long a node has to wait for its turn. Zero uses the turn up.
func (t *turns) take(uid types.UID, now time.Time) time.Duration {
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

// leave forgets a node.
func (t *turns) leave(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, uid)
}
