package evictor

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// retryBase is the first wait after an attempt that failed. Each pod waits for itself alone: a bucket
	// shared by all would keep the last of many pods waiting long after the API server is back.
	retryBase = 10 * time.Millisecond
	// conflictMax is the longest wait after a conflict. The next attempt decides on the new version, and
	// an object that changes often must not make it wait longer and longer.
	conflictMax = 100 * time.Millisecond
	// longestSleep is the longest that a pod sleeps before its deadline is computed again.
	// Deadlines are times of the API server, sleeps are measured by this machine.
	// Where the two part, because the server's clock was set forward or the machine
	// was suspended, a pod oversleeps by this much at most.
	longestSleep = time.Minute
	// busyPause is how long a pod waits that another worker handles.
	busyPause = 100 * time.Millisecond
)

// The name labels of the workqueue metrics: those of Kubernetes' two controllers
// (DE-59).
const (
	nodeQueue   = "taint-eviction-controller"
	deviceQueue = "device-taint-eviction-controller"
	stampQueue  = "taint-eviction-controller-stamp"
)

// queues are what wakes the workers. A queue is never the truth: a pod that is woken is decided
// anew, and one whose eviction is cancelled is woken in vain. Pods that use claims have a
// queue of their own, so that the metrics of both are what they are in Kubernetes (DE-59),
// and neither has to wait behind the other.
type queues struct {
	plain, claiming *controller.Controller[tracker.Key]
	// nodes are those with taints that want a time.
	nodes *controller.Controller[string]
}

func (e *Evictor) newQueues() queues {
	base := controller.Base{Local: e.local, Leads: e.options.Leads}
	pods := func(name string, claiming bool) *controller.Controller[tracker.Key] {
		return controller.New(base, controller.Options[tracker.Key]{
			Name: name, Workers: e.options.Workers, RetryBase: retryBase, Started: e.starting.Done,
			Reconcile: func(ctx context.Context, key tracker.Key) (time.Duration, error) { return e.step(ctx, key, claiming) },
		})
	}
	q := queues{plain: pods(nodeQueue, false), claiming: pods(deviceQueue, true)}
	base.Timeout = e.options.AttemptTimeout
	q.nodes = controller.New(base, controller.Options[string]{
		Name: stampQueue, RetryBase: retryBase, Started: e.starting.Done, Reconcile: e.stampStep,
	})
	return q
}

// of returns the queue for pods that use claims, or for all others.
func (q *queues) of(claiming bool) *controller.Controller[tracker.Key] {
	if claiming {
		return q.claiming
	}
	return q.plain
}

// step handles one pod of a queue. An error means that it is tried again; a positive duration, that it is
// not time yet; zero, that it is done or need not be done.
//
// A pod in the wrong queue changes over: its claims, generated for it or found by the scheduler, may have
// shown up while it waited. A queue gives a pod to one worker at a time; a pod that changes over could be
// given to a second.
func (e *Evictor) step(ctx context.Context, key tracker.Key, claiming bool) (time.Duration, error) {
	if e.tracker.UsesClaims(key) != claiming {
		e.queues.of(!claiming).Add(key)
		return 0, nil
	}
	if _, busy := e.busy.LoadOrStore(key, struct{}{}); busy {
		return busyPause, nil
	}
	defer e.busy.Delete(key)
	defer e.round.done(key)
	woken := e.woken.Load()
	wait, err := e.look(ctx, key)
	switch {
	case err != nil:
		return 0, backoff(e.queues.of(claiming), key, err)
	case wait > 0 && woken != e.woken.Load():
		// Held pods may have been woken before this one was recorded as held.
		return time.Millisecond, nil
	}
	return min(wait, longestSleep), nil
}

// backoff returns the error of an attempt that failed, which says how long its key waits: longer each
// time, and at least as long as the API server asks for, up to the longest wait that there is.
func backoff[K comparable](queue *controller.Controller[K], key K, cause error) error {
	wait := min(queue.Backoff(key, cause), controller.RetryMax)
	if _, asks := apierrors.SuggestsClientDelay(cause); !asks && act.Classify(cause) == act.Conflict {
		wait = min(wait, conflictMax)
	}
	return controller.DelayError(wait)
}
