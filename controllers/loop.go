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
	// The bounds of the wait between two attempts at one name.
	retryBase = 100 * time.Millisecond
	retryMax  = 30 * time.Second
	// longestDelay bounds what an answer of the API server may ask for.
	longestDelay = 5 * time.Minute
	// leasePause is how long a name waits while this replica is not sure that it leads.
	leasePause = time.Second
)

// LoopOptions are what a Loop works with. Fields without a default are required.
type LoopOptions[K comparable] struct {
	// Name is the name label of the workqueue metrics.
	Name string
	// Clock is that of this machine.
	Clock clock.WithTicker
	// Leads reports whether this replica still holds the lease. It is asked before each
	// step.
	Leads func() bool
	// Workers is how many steps are under way at once; 1 when zero.
	Workers int
	// Timeout bounds a step. It must be no longer than the lease lasts beyond the time
	// for which Leads answers yes.
	Timeout time.Duration
	// Describe says in logs what a key names. Nil is as the key prints, which is enough for
	// strings: the fields of a struct that are not exported are not in the log.
	Describe func(key K) string
	// Step looks at one name. It returns when to look again unasked, zero for never.
	Step func(ctx context.Context, key K) (again time.Duration, err error)
}

// Loop is a queue of names and the workers that work it off. Its methods are
// goroutine-safe.
type Loop[K comparable] struct {
	options LoopOptions[K]
	backoff workqueue.TypedRateLimiter[K]

	mu sync.Mutex
	// queue wakes the workers; nil while they do not run.
	queue workqueue.TypedDelayingInterface[K]
}

// NewLoop returns a loop that does not run.
func NewLoop[K comparable](options LoopOptions[K]) *Loop[K] {
	options.Workers = max(options.Workers, 1)
	return &Loop[K]{
		options: options,
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryBase, retryMax),
	}
}

// Add has names looked at soon. It does not block, and does nothing while the loop does
// not run.
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

// Run works until ctx is done, and returns when all workers have stopped. It calls
// started once names can be added.
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
		// A queue that is shut down still hands out what it holds.
		if ctx.Err() == nil {
			if again := l.step(ctx, key); again > 0 {
				queue.AddAfter(key, again)
			}
		}
		queue.Done(key)
	}
}

// step looks at one name and returns when to look again, zero for when it is added.
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
		// Webhooks may ask for anything.
		wait = max(wait, min(time.Duration(seconds)*time.Second, longestDelay))
	}
	log := logr.FromContextOrDiscard(ctx)
	if l.backoff.NumRequeues(key) > 1 || apierrors.IsConflict(err) || ctx.Err() != nil {
		log = log.V(1) // It was said when it began, or is no fault.
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
