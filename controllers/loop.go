package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/evictor/panics"
)

const (
	// The bounds of the exponential backoff of one key.
	retryBase = 100 * time.Millisecond
	retryMax  = 30 * time.Second
	// longestDelay caps the Retry-After delay of an answer of the API server.
	longestDelay = 5 * time.Minute
	// leasePause is how long a key waits while this replica may not hold the lease.
	leasePause = time.Second
)

// LoopOptions configures a Loop. Fields without a default are required.
type LoopOptions[K comparable] struct {
	// Name is the name label of the workqueue metrics.
	Name string
	// Clock is the clock of this machine.
	Clock clock.WithTicker
	// Leads reports whether this replica still holds the lease. The loop calls it before
	// each step.
	Leads func() bool
	// Workers is the number of concurrent steps; 1 when zero.
	Workers int
	// Timeout bounds a step. It must not exceed the time that the lease still lasts after
	// Leads last returned true.
	Timeout time.Duration
	// Describe returns the name of a key for logs. If nil, the key is printed with
	// fmt.Sprint, which suffices for strings; the log omits unexported fields of a struct.
	Describe func(key K) string
	// Step reconciles one key. It returns the delay after which the key is queued again;
	// zero means never.
	Step func(ctx context.Context, key K) (again time.Duration, err error)
}

// Loop is a work queue and its workers. Its methods are goroutine-safe.
type Loop[K comparable] struct {
	options LoopOptions[K]
	backoff workqueue.TypedRateLimiter[K]

	mu sync.Mutex
	// queue is nil while the workers do not run.
	queue workqueue.TypedDelayingInterface[K]
}

// NewLoop returns a loop; Run starts it.
func NewLoop[K comparable](options LoopOptions[K]) *Loop[K] {
	options.Workers = max(options.Workers, 1)
	return &Loop[K]{
		options: options,
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryBase, retryMax),
	}
}

// Add queues keys. It does not block, and does nothing while the loop does not run.
func (l *Loop[K]) Add(keys ...K) {
	l.mu.Lock()
	queue := l.queue
	l.mu.Unlock()
	if queue == nil {
		return
	}
	for _, key := range keys {
		queue.Add(key)
	}
}

// Run runs the workers until ctx is done, and returns when all of them have stopped. It
// calls started as soon as Add queues keys.
func (l *Loop[K]) Run(ctx context.Context, started func()) {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
		Name: l.options.Name, Clock: l.options.Clock,
	})
	l.use(queue)
	defer l.use(nil)
	var running sync.WaitGroup
	for range l.options.Workers {
		running.Go(func() { l.work(ctx, queue) })
	}
	started()
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

func (l *Loop[K]) use(queue workqueue.TypedDelayingInterface[K]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = queue
}

func (l *Loop[K]) work(ctx context.Context, queue workqueue.TypedDelayingInterface[K]) {
	for {
		key, down := queue.Get()
		if down {
			return
		}
		// A queue that is shut down still returns the keys that it contains.
		if ctx.Err() == nil {
			if again := l.step(ctx, key); again > 0 {
				queue.AddAfter(key, again)
			}
		}
		queue.Done(key)
	}
}

// step reconciles one key and returns the delay until the next attempt, zero for none.
func (l *Loop[K]) step(ctx context.Context, key K) time.Duration {
	if !l.options.Leads() {
		return leasePause
	}
	attempt, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	var again time.Duration
	err := panics.Contain(attempt, l.options.Name, func() (err error) {
		again, err = l.options.Step(attempt, key)
		return err
	})
	if err == nil {
		l.backoff.Forget(key)
		return again
	}
	wait := l.backoff.When(key)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		// Admission webhooks can set any Retry-After.
		wait = max(wait, min(time.Duration(seconds)*time.Second, longestDelay))
	}
	log := logr.FromContextOrDiscard(ctx)
	if l.backoff.NumRequeues(key) > 1 || apierrors.IsConflict(err) || ctx.Err() != nil {
		log = log.V(1) // The first failure was logged, or this is no fault.
	}
	log.Info("cannot finish yet", "loop", l.options.Name, "key", l.describe(key), "reason", err.Error(), "again", wait.String())
	return wait
}

func (l *Loop[K]) describe(key K) string {
	if l.options.Describe == nil {
		return fmt.Sprint(key)
	}
	return l.options.Describe(key)
}
