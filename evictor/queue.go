package evictor

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

const (
	// The bounds of the wait between two attempts. Each item waits for itself
	// alone: a bucket shared by all would keep the last of many items waiting long
	// after the API server is back.
	retryBase = 10 * time.Millisecond
	retryMax  = 30 * time.Second
	// The longest wait after a conflict. The next attempt knows better, and what
	// changes often must not wait longer and longer for a quiet moment.
	conflictMax = 100 * time.Millisecond
	// The longest that an item sleeps before its deadline is computed again.
	// Deadlines are times of the API server, sleeps are measured by this machine.
	// Where the two part, because the server's clock was set forward or the machine
	// was suspended, an item oversleeps by this much at most.
	longestSleep = time.Minute
)

// queue wakes items at their time. It is never the truth: an item that is woken
// is decided anew, and one that is cancelled is woken in vain. It orders by time
// in O(log n), whatever many items share one time (H08).
type queue[T comparable] struct {
	workqueue.TypedDelayingInterface[T]

	backoff workqueue.TypedRateLimiter[T]
}

// newQueue returns a queue that runs until it is shut down. Its metrics are those
// of client-go's workqueues under that name. The queue keeps the time at which an
// item is to wake, so local must not be a clock that can be set: when it is set
// back, everything sleeps for as much longer.
func newQueue[T comparable](name string, local clock.WithTicker) *queue[T] {
	return &queue[T]{
		TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
			Name:  name,
			Clock: local,
		}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryBase, retryMax),
	}
}

// sleep puts an item aside until wait has passed.
func (q *queue[T]) sleep(item T, wait time.Duration) {
	q.backoff.Forget(item)
	if wait > 0 {
		q.AddAfter(item, min(wait, longestSleep))
	}
}

// retry puts an item aside after a failure: longer each time, and at least as
// long as the API server asks for, up to the longest wait that there is. Webhooks may
// ask for anything.
func (q *queue[T]) retry(item T, cause error) {
	wait := q.backoff.When(item)
	if act.Classify(cause) == act.Conflict {
		wait = min(wait, conflictMax)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(cause); ok {
		wait = max(wait, min(time.Duration(seconds)*time.Second, retryMax))
	}
	q.AddAfter(item, wait)
}

// work passes items to step until the queue is shut down. It is told how long an
// item has to wait until it is looked at again, zero for never, or an error after
// which it is tried again.
func (q *queue[T]) work(step func(T) (time.Duration, error)) {
	for {
		item, down := q.Get()
		if down {
			return
		}
		again, err := step(item)
		if err != nil {
			q.retry(item, err)
		} else {
			q.sleep(item, again)
		}
		q.Done(item)
	}
}
