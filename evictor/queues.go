package evictor

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// queues are what wakes the workers. Pods that use claims have a queue of their
// own, so that the metrics of both are what they are in Kubernetes (DE-59), and
// neither has to wait behind the other.
type queues struct {
	plain    *queue[tracker.Key]
	claiming *queue[tracker.Key]
	// nodes are those with taints that want a time.
	nodes *queue[string]
}

func newQueues(local clock.WithTicker) *queues {
	return &queues{
		plain:    newQueue[tracker.Key](nodeQueue, local),
		claiming: newQueue[tracker.Key](deviceQueue, local),
		nodes:    newQueue[string](stampQueue, local),
	}
}

// of returns the queue for pods that use claims, or for all others.
func (q *queues) of(claiming bool) *queue[tracker.Key] {
	if claiming {
		return q.claiming
	}
	return q.plain
}

func (q *queues) shutDown() {
	q.plain.ShutDown()
	q.claiming.ShutDown()
	q.nodes.ShutDown()
}

// stepIn returns step for one of the two queues of pods. A pod in the wrong one
// changes over: its claims, generated for it or found by the scheduler, may have
// shown up while it waited.
func (e *Evictor) stepIn(q *queues, claiming bool) func(context.Context, tracker.Key) (time.Duration, error) {
	return func(ctx context.Context, key tracker.Key) (time.Duration, error) {
		if e.tracker.UsesClaims(key) != claiming {
			q.of(!claiming).Add(key)
			return 0, nil
		}
		if !e.hands.take(key) {
			return handPause, nil
		}
		defer e.hands.release(key)
		return e.step(ctx, key)
	}
}

// handPause is how long a pod waits that is in the hands of another worker.
const handPause = 100 * time.Millisecond

// hands holds the pods that workers are busy with. A queue gives an item to one
// worker at a time; a pod that changes over could be given to a second.
type hands struct {
	mu   sync.Mutex
	busy map[tracker.Key]struct{}
}

func newHands() *hands {
	return &hands{busy: map[tracker.Key]struct{}{}}
}

// take reports whether nobody was busy with a pod; the caller is from then on.
func (h *hands) take(key tracker.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.busy[key]; taken {
		return false
	}
	h.busy[key] = struct{}{}
	return true
}

func (h *hands) release(key tracker.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, key)
}
