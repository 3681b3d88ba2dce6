package evictor

import (
	"sync"

	"github.com/tollgate-dev/tollgate/tracker"
)

// round is the first look at every pod after the lease was won. Until it is through,
// nobody knows how many pods are held.
type round struct {
	mu   sync.Mutex
	left map[tracker.Key]struct{}
	// through is true once all have been looked at.
	through bool
}

func (r *round) begin(keys []tracker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = make(map[tracker.Key]struct{}, len(keys))
	for _, key := range keys {
		r.left[key] = struct{}{}
	}
	r.through = len(keys) == 0
}

// done says that a pod was looked at.
func (r *round) done(key tracker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.through || r.left == nil {
		return
	}
	if delete(r.left, key); len(r.left) == 0 {
		r.left, r.through = nil, true
	}
}

func (r *round) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.through = nil, false
}

func (r *round) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.through
}

// Settled reports whether every pod was looked at since this replica leads, so that what
// Held returns is all that there is.
func (e *Evictor) Settled() bool { return e.round.over() }
