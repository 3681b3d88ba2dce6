package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watch watches one resource.
type Watch interface {
	// Run watches until ctx is done.
	Run(ctx context.Context)
	// Synced is closed once the first list has been processed.
	Synced() <-chan struct{}
	// Holds reports whether the watch has an object that another watch passes in Forget.
	Holds(object any) bool
	// Forget removes the objects of the watch, except those for which keep is true. It is called
	// after Run has returned.
	Forget(keep func(object any) bool)
}

// Resource is a resource that the API server may serve.
type Resource struct {
	Name schema.GroupResource
	// Versions are the supported versions, preferred first.
	Versions []string
	// Without is logged as the consequence of a resource that is not served or not permitted.
	Without string
	// Misleading is true when an incomplete list may mislead.
	Misleading bool
	// Served is called with whether the resource is served, before it is watched. It may be nil.
	Served func(served bool)
	// Watch returns a watch of the resource in a version, which reports the error of each
	// request, nil for success. It is nil for resources that are only discovered.
	Watch func(version string, report func(error)) Watch
	// Probe returns an error if a watch is not permitted.
	Probe func(ctx context.Context, version string) error
}

// state is the state of a resource. The values are metric labels.
type state string

const (
	stateUnknown  state = "unknown"
	stateUnserved state = "unserved"
	stateServed   state = "served"
	stateDenied   state = "denied"
	stateListing  state = "listing"
	stateWatched  state = "watched"
	stateStale    state = "stale"
)

// answer classifies the response to a list or a watch.
type answer int

const (
	answerOther answer = iota
	answerGood
	answerDenied
	answerMissing
)

func answerOf(err error) answer {
	switch {
	case err == nil:
		return answerGood
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return answerDenied
	case apierrors.IsNotFound(err):
		return answerMissing
	}
	return answerOther
}

// resource is a Resource and its state.
type resource struct {
	Resource

	wake func()
	// state and version are written by the goroutine of Start alone, with the lock of the Keeper.
	state   state
	version string
	// failedSince is since when discovery of the resource has failed; zero while it succeeds. skipped is
	// true once nothing waits for it any more.
	failedSince time.Time
	skipped     bool
	// unservedSince is when discovery first found the resource unserved; zero while it is served.
	unservedSince time.Time
	// refused is when a watch was first denied; zero once a watch has synced.
	refused time.Time
	// stopped are the stopped watches whose objects are kept until a new watch has synced, or none will
	// follow.
	stopped []Watch
	// watch is nil while none runs.
	watch  Watch
	cancel context.CancelFunc
	ran    sync.WaitGroup

	mu   sync.Mutex
	last answer
	err  error
}

// start starts the watch in two goroutines.
func (r *resource) start(ctx context.Context) {
	r.mu.Lock()
	r.last, r.err = answerOther, nil
	r.mu.Unlock()
	ctx, r.cancel = context.WithCancel(ctx)
	watch := r.Watch(r.version, r.report)
	r.watch = watch
	r.ran.Go(func() { watch.Run(ctx) })
	r.ran.Go(func() {
		select {
		case <-ctx.Done():
		case <-watch.Synced():
			r.wake()
		}
	})
}

// stop stops the watch, if any, and waits for it. Its objects stay for now.
func (r *resource) stop() {
	if r.watch != nil {
		r.cancel()
		r.ran.Wait()
		r.stopped = append(r.stopped, r.watch)
		r.watch = nil
	}
}

// forget removes the objects of stopped watches, except those that the current watch, which has
// synced, has too.
func (r *resource) forget() {
	for _, watch := range r.stopped {
		watch.Forget(func(object any) bool { return r.watch != nil && r.watch.Holds(object) })
	}
	r.stopped = nil
}

func (r *resource) synced() bool {
	if r.watch == nil {
		return false
	}
	select {
	case <-r.watch.Synced():
		return true
	default:
		return false
	}
}

// report is called by the watch. Only a changed answer wakes the keeper, so that a watch that
// keeps failing does not.
func (r *resource) report(err error) {
	now := answerOf(err)
	r.mu.Lock()
	news := now != r.last
	r.last, r.err = now, err
	r.mu.Unlock()
	if news {
		r.wake()
	}
}

// lastAnswer returns the last reported answer and its error.
func (r *resource) lastAnswer() (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.err
}

// Metrics are the metrics of a Keeper.
type Metrics struct {
	states *prometheus.GaugeVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{states: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_api_resources",
		Help: "1 for the current state of a resource of the API server: unknown, unserved, served, denied, listing, watched or stale.",
	}, []string{"resource", "state"})}
}

// set sets the gauge of the state of a resource.
func (m *Metrics) set(name schema.GroupResource, now state) {
	for _, s := range []state{stateUnknown, stateUnserved, stateServed, stateDenied, stateListing, stateWatched, stateStale} {
		value := 0.0
		if s == now {
			value = 1
		}
		m.states.WithLabelValues(name.Resource, string(s)).Set(value)
	}
}
