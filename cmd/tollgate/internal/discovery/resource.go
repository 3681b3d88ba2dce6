package discovery

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watch is what watches one resource.
type Watch interface {
	// Run watches until ctx is done.
	Run(ctx context.Context)
	// Synced is closed once the first list has been dealt with.
	Synced() <-chan struct{}
	// Holds reports whether the watch knows an object that Forget of another one asks
	// about.
	Holds(object any) bool
	// Forget undoes what the watch did, but for the objects that are to be kept. It is
	// called after Run has returned.
	Forget(keep func(object any) bool)
}

// Resource is what may be served or not.
type Resource struct {
	Name schema.GroupResource
	// Versions are those that can be dealt with, the one to prefer first.
	Versions []string
	// Without says what follows when it is not served or not permitted.
	Without string
	// Misleading is true when a part of the objects may say what all of them do not.
	Misleading bool
	// Served is told whether the resource is served, before it is watched. It may be
	// nil.
	Served func(served bool)
	// Watch returns what watches the resource in a version and reports the answers
	// of the API server, nil for a success. It is nil where all that matters is
	// whether the resource is served.
	Watch func(version string, report func(error)) Watch
	// Probe finds out whether a watch is permitted.
	Probe func(ctx context.Context, version string) error
}

// state says what is known of a resource. The values are metric labels.
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

// answer is how the API server answered a list or a watch.
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

// resource is a Resource and what is known of it.
type resource struct {
	Resource

	wake    func()
	state   state
	version string
	// mute is since when the API server does not say whether it serves the resource;
	// zero while it does. skipped is true once that is not waited for any more.
	mute    time.Time
	skipped bool
	// missed is when a look first found that the resource is not served any more;
	// zero while it is.
	missed time.Time
	// refused is when it was first said that a watch is not permitted; zero once one
	// has listed everything.
	refused time.Time
	// left are watches that have ended but are not forgotten: what they found counts
	// until another one has listed everything, or none is to come.
	left []Watch
	// watch is nil while none runs.
	watch  Watch
	cancel context.CancelFunc
	ran    sync.WaitGroup

	mu   sync.Mutex
	last answer
	err  error
}

// start begins to watch.
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

// leave ends the watch, which may be none, and keeps what it found for now.
func (r *resource) leave() {
	if r.watch == nil {
		return
	}
	r.end()
	r.left = append(r.left, r.watch)
	r.watch = nil
}

// forget undoes what earlier watches did, but for the objects that the present one,
// if there is one, knows too: it has listed everything.
func (r *resource) forget() {
	for _, watch := range r.left {
		watch.Forget(func(object any) bool { return r.watch != nil && r.watch.Holds(object) })
	}
	r.left = nil
}

// probe finds out whether a watch is permitted.
func (r *resource) probe(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return r.Probe(ctx, r.version)
}

// end ends the watch and leaves what it did.
func (r *resource) end() {
	if r.watch != nil {
		r.cancel()
		r.ran.Wait()
	}
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

// report is called by the watch. What stays as it was is no news, so that a watch
// that keeps failing wakes nobody.
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

// heard returns the last answer that was reported.
func (r *resource) heard() (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.err
}
