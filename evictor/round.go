package evictor

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/tracker"
)

// round is the first look at every pod after the lease was won. Until it is over,
// the number of held pods is not known.
type round struct {
	mu sync.Mutex
	// left are the pods that were not looked at yet, nil while the evictor does not run.
	left sets.Set[tracker.Key]
}

func (r *round) begin(keys []tracker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = sets.New(keys...)
}

// done records that a pod was looked at.
func (r *round) done(key tracker.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left.Delete(key)
}

func (r *round) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
}

// Settled reports whether every pod was looked at since this replica leads, so that what
// Held returns is all that there is.
func (e *Evictor) Settled() bool {
	e.round.mu.Lock()
	defer e.round.mu.Unlock()
	return e.round.left != nil && len(e.round.left) == 0
}
