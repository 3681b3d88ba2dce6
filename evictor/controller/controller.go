package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const (
	// RetryMax is the longest wait of the exponential backoff of one key, and retryBase the first, unless
	// Options have others.
	RetryMax  = 30 * time.Second
	retryBase = 100 * time.Millisecond
	// longestDelay caps the Retry-After delay of an answer of the API server.
	longestDelay = 5 * time.Minute
	// leasePause is how long a key waits while this replica may not hold the lease.
	leasePause = time.Second
	// watchPause is the delay between two attempts to watch.
	watchPause = 5 * time.Second
)

// Cache is a cache of controller-runtime.
type Cache interface {
	client.Reader
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Policies returns the policies in force, and signals changes.
type Policies interface {
	Current() *policyset.Set
	Subscribe() (changed <-chan struct{}, stop func())
}

// Recorder writes events. It must not block.
type Recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// StatusWriter writes the status of objects; client.SubResourceWriter implements it.
type StatusWriter interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// Base contains what controllers share. A controller does not use all of it.
type Base struct {
	Cache    Cache
	Status   StatusWriter
	Policies Policies
	Recorder Recorder
	// Clock is the clock of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	// Leads reports whether this replica still holds the lease. It is called before each
	// attempt.
	Leads func() bool
	// Timeout bounds an attempt; zero if Reconcile bounds its requests itself. It must not
	// exceed the time that the lease still lasts after Leads last returned true.
	Timeout time.Duration
}

// NewCounter registers a counter with one label, whose series start at zero.
func NewCounter(reg prometheus.Registerer, name, help, label string, values ...string) *prometheus.CounterVec {
	counter := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		counter.WithLabelValues(value)
	}
	return counter
}

// WriteStatus patches the status of an object; subject describes it in errors.
func (b *Base) WriteStatus(ctx context.Context, subject string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := b.Status.Patch(ctx, object, patch, opts...); err != nil {
		return fmt.Errorf("write %s %s: %w", subject, object.GetName(), err)
	}
	return nil
}

// ChangesTo returns a merge patch with the changes of an object since before, which fails
// with a conflict if another writer has changed the object meanwhile.
func ChangesTo(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// Options configures a Controller. Name and Reconcile are required.
type Options[K comparable] struct {
	// Name is the name label of the workqueue metrics.
	Name string
	// Workers is the number of keys that are reconciled concurrently; 1 when zero.
	Workers int
	// RetryBase is the first wait of the backoff of a key, and RetryMax the longest; 100 ms and 30 s
	// when zero.
	RetryBase, RetryMax time.Duration
	// Describe returns the name of a key for logs. If nil, the key is printed with
	// fmt.Sprint, which suffices for strings; the log omits unexported fields of a struct.
	Describe func(key K) string
	// Started is called as soon as Add queues keys, before any worker or watch runs. It
	// clears the state of an earlier term of leadership, and queues the first keys.
	Started func()
	// Watches are the handlers of the events of each kind.
	Watches map[client.Object]toolscache.ResourceEventHandler
	// PoliciesChanged is called after each change of the policies in force.
	PoliciesChanged func(ctx context.Context)
	// Reconcile reconciles one key. It returns the delay after which the key is queued
	// again; zero means never. The log names its errors, except a DelayError.
	Reconcile func(ctx context.Context, key K) (again time.Duration, err error)
}

// DelayError is the error of a reconcile whose next attempt has to wait for this long. A key
// that returns it keeps its backoff.
type DelayError time.Duration

// Error implements error.
func (e DelayError) Error() string { return "wait for " + time.Duration(e).String() }

// Controller is a work queue of keys and its workers, which run while this replica leads.
// Its methods are goroutine-safe.
type Controller[K comparable] struct {
	Base

	options Options[K]
	backoff workqueue.TypedRateLimiter[K]

	mu sync.Mutex
	// queue is nil while the workers do not run.
	queue workqueue.TypedDelayingInterface[K]
}

// New returns a controller; Start starts it.
func New[K comparable](base Base, options Options[K]) *Controller[K] {
	options.Workers = max(options.Workers, 1)
	if options.Describe == nil {
		options.Describe = func(key K) string { return fmt.Sprint(key) }
	}
	return &Controller[K]{Base: base, options: options}
}

// Add queues keys. It does not block, and does nothing while the controller does not run.
func (c *Controller[K]) Add(keys ...K) { c.AddAfter(0, keys...) }

// AddAfter queues keys after a wait; at once if it is not positive.
func (c *Controller[K]) AddAfter(wait time.Duration, keys ...K) {
	c.mu.Lock()
	queue := c.queue
	c.mu.Unlock()
	if queue == nil {
		return
	}
	for _, key := range keys {
		queue.AddAfter(key, wait)
	}
}

// Start runs the controller until ctx is done, and returns when all workers have stopped.
func (c *Controller[K]) Start(ctx context.Context) error {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: c.options.Name, Clock: c.Local})
	// The failures of an earlier term say nothing about this one, and their keys may never be queued again.
	c.backoff = workqueue.NewTypedItemExponentialFailureRateLimiter[K](cmp.Or(c.options.RetryBase, retryBase), cmp.Or(c.options.RetryMax, RetryMax))
	c.use(queue)
	defer c.use(nil)
	if c.options.Started != nil {
		c.options.Started()
	}
	var running sync.WaitGroup
	if c.options.PoliciesChanged != nil {
		changed, unsubscribe := c.Policies.Subscribe()
		defer unsubscribe()
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changed:
					_ = Contain(ctx, c.options.Name, func() error { c.options.PoliciesChanged(ctx); return nil })
				}
			}
		})
	}
	for range c.options.Workers {
		running.Go(func() { c.work(ctx, queue) })
	}
	for object, handler := range c.options.Watches {
		running.Go(func() { Watch(ctx, c.Cache, object, handler, c.Local) })
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
	return nil
}

func (c *Controller[K]) use(queue workqueue.TypedDelayingInterface[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
}

func (c *Controller[K]) work(ctx context.Context, queue workqueue.TypedDelayingInterface[K]) {
	for {
		key, down := queue.Get()
		if down {
			return
		}
		// A queue that is shut down still returns the keys that it contains.
		if ctx.Err() == nil {
			if again := c.attempt(ctx, key); again > 0 {
				queue.AddAfter(key, again)
			}
		}
		queue.Done(key)
	}
}

// attempt reconciles one key while this replica holds the lease, and returns the delay
// until the next attempt, zero for none. A panic is an error of its key only.
func (c *Controller[K]) attempt(ctx context.Context, key K) time.Duration {
	if !c.Leads() {
		return leasePause
	}
	attempt := ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	var again time.Duration
	err := Contain(attempt, c.options.Name, func() (err error) {
		again, err = c.options.Reconcile(attempt, key)
		return err
	})
	if err == nil {
		c.backoff.Forget(key)
		return again
	}
	if delay, ok := errors.AsType[DelayError](err); ok {
		return time.Duration(delay)
	}
	wait := c.Backoff(key, err)
	log := logr.FromContextOrDiscard(ctx)
	if c.backoff.NumRequeues(key) > 1 || apierrors.IsConflict(err) || ctx.Err() != nil {
		log = log.V(1) // The first failure was logged, or this is no fault.
	}
	log.Info("cannot finish yet", "loop", c.options.Name, "key", c.options.Describe(key), "reason", err.Error(), "again", wait.String())
	return wait
}

// Backoff counts a failure of a key, and returns the delay until its next attempt. A
// reconcile calls it only if it then returns a DelayError.
func (c *Controller[K]) Backoff(key K, err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err) // Admission webhooks can set any Retry-After.
	return max(c.backoff.When(key), min(time.Duration(seconds)*time.Second, longestDelay))
}

// OnEvent returns a handler that calls do with the object of each event: the new one of an
// update, and the last one seen before a deletion.
func OnEvent(do func(object client.Object)) toolscache.ResourceEventHandler {
	handle := func(obj any) {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(client.Object); ok {
			do(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: handle}
}

// Watch sends the events of the kind of object to handler until ctx is done. It retries
// every watchPause while the cache has no informer for the kind, for example because the
// CRD is not installed yet.
func Watch(ctx context.Context, cached Cache, object client.Object, handler toolscache.ResourceEventHandler, clock clock.WithTicker) {
	for logged := false; ; logged = true {
		informer, err := cached.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			var registration toolscache.ResourceEventHandlerRegistration
			if registration, err = informer.AddEventHandler(handler); err == nil {
				<-ctx.Done()
				err = informer.RemoveEventHandler(registration)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !logged {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch yet")
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.After(watchPause):
		}
	}
}
