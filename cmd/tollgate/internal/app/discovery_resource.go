package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resourceWatch watches one resource.
type resourceWatch interface {
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

// apiResource is a resource that the API server may serve.
type apiResource struct {
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
	Watch func(version string, report func(error)) resourceWatch
}

// resourceState is the state of a resource. The values are metric labels.
type resourceState string

const (
	stateUnknown  resourceState = "unknown"
	stateUnserved resourceState = "unserved"
	stateServed   resourceState = "served"
	stateDenied   resourceState = "denied"
	stateListing  resourceState = "listing"
	stateWatched  resourceState = "watched"
	stateStale    resourceState = "stale"
)

// denied reports whether an error is that of a request that is not permitted.
func denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// keptResource is a resource that a Keeper keeps, and its state.
type keptResource struct {
	apiResource

	wake func()
	// state and version are written by the goroutine of Start alone, with the lock of the Keeper.
	state   resourceState
	version string
	// failedSince is since when discovery of the resource has failed; zero while it succeeds. skipped is
	// true once nothing waits for it any more.
	failedSince time.Time
	skipped     bool
	// failure is the error of the last discovery that failed.
	failure error
	// unservedSince is when discovery first found the resource unserved; zero while it is served.
	unservedSince time.Time
	// refused is when a watch was first denied; zero once a watch has synced.
	refused time.Time
	// stopped are the stopped watches whose objects are kept until a new watch has synced, or none will
	// follow.
	stopped []resourceWatch
	// watch is nil while none runs.
	watch  resourceWatch
	cancel context.CancelFunc
	ran    sync.WaitGroup
	// reported is the last report of the watch, an error or nil; it is stored before the watch starts.
	reported atomic.Pointer[error]
}

// start starts the watch in two goroutines.
func (r *keptResource) start(ctx context.Context) {
	r.reported.Store(new(error))
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
func (r *keptResource) stop() {
	if r.watch != nil {
		r.cancel()
		r.ran.Wait()
		r.stopped = append(r.stopped, r.watch)
		r.watch = nil
	}
}

// forget removes the objects of stopped watches, except those that the current watch, which has
// synced, has too.
func (r *keptResource) forget() {
	for _, watch := range r.stopped {
		watch.Forget(func(object any) bool { return r.watch != nil && r.watch.Holds(object) })
	}
	r.stopped = nil
}

// report is called by the watch. Only another kind of error wakes the keeper, so that a watch that
// keeps failing does not.
func (r *keptResource) report(err error) {
	before := *r.reported.Swap(&err)
	if denied(err) != denied(before) || apierrors.IsNotFound(err) != apierrors.IsNotFound(before) {
		r.wake()
	}
}
