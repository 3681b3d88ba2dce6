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
	// retryBase is the first wait after a failed attempt. Each pod has its own backoff: with a
	// shared bucket, the last of many pods would wait long after the API server has recovered.
	retryBase = 10 * time.Millisecond
	// conflictMax is the maximum wait after a conflict. The next attempt decides about the new
	// version of the pod, and pods that change often must not wait longer and longer.
	conflictMax = 100 * time.Millisecond
	// longestSleep is the maximum time before the deadline of a pod is computed again. Deadlines
	// are times of the API server, but sleeps are measured by this machine. If the clocks diverge,
	// because one was set or the machine was suspended, a pod leaves late by at most this.
	longestSleep = time.Minute
	// busyPause is the wait of a pod that another worker is processing.
	busyPause = 100 * time.Millisecond
)

// The name labels of the workqueue metrics: those of Kubernetes' two controllers
// (DE-59).
const (
	nodeQueue   = "taint-eviction-controller"
	deviceQueue = "device-taint-eviction-controller"
	stampQueue  = "taint-eviction-controller-stamp"
)

// queues wake the workers. Decisions do not depend on them: each pod is decided about again when
// it is woken. Pods that use claims have their own queue, so that the metrics of both queues mean
// what they mean in Kubernetes (DE-59), and neither delays the other.
type queues struct {
	plain, claiming *controller.Controller[tracker.Key]
	// nodes has the nodes with taints without a time.
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

// of returns the queue for pods that use claims, or for all other pods.
func (q *queues) of(claiming bool) *controller.Controller[tracker.Key] {
	if claiming {
		return q.claiming
	}
	return q.plain
}

// step processes one pod of a queue. It returns after how long to process the pod again, zero for
// never, or an error that does the same.
//
// A pod whose claims became known while it waited moves to the other queue. A queue gives a pod to
// one worker at a time, but a pod that moves could be given to a second one, so busy guards it.
func (e *Evictor) step(ctx context.Context, key tracker.Key, claiming bool) (time.Duration, error) {
	if e.tracker.UsesClaims(key) != claiming {
		e.queues.of(!claiming).Add(key)
		return 0, nil
	}
	if _, busy := e.busy.LoadOrStore(key, struct{}{}); busy {
		return busyPause, nil
	}
	defer e.busy.Delete(key)
	defer e.firstPass.done(key)
	woken := e.woken.Load()
	wait, err := e.process(ctx, key)
	switch {
	case err != nil:
		return 0, backoff(e.queues.of(claiming), key, err)
	case wait > 0 && woken != e.woken.Load():
		// Held pods may have been woken before this one was recorded as held.
		return time.Millisecond, nil
	}
	return min(wait, longestSleep), nil
}

// backoff returns an error with the wait of a key after a failed attempt: exponential, at least the
// Retry-After of the API server, and at most controller.RetryMax.
func backoff[K comparable](queue *controller.Controller[K], key K, cause error) error {
	wait := min(queue.Backoff(key, cause), controller.RetryMax)
	if _, asks := apierrors.SuggestsClientDelay(cause); !asks && act.Classify(cause) == act.Conflict {
		wait = min(wait, conflictMax)
	}
	return controller.DelayError(wait)
}
