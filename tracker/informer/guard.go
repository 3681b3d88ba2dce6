package informer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// defaultSilence is longer than two bookmarks take, of which an API server sends one
	// a minute on a watch where nothing happens (KEP-956).
	defaultSilence = 150 * time.Second
	// defaultListTimeout is longer than an API server works on a list, which is a minute
	// unless --request-timeout says otherwise, so that the API server answers first.
	defaultListTimeout = 2 * time.Minute
	// defaultPause is how long it takes until a list is asked for again that may be wrong.
	defaultPause = time.Second
)

// GuardOptions configure a Guard.
type GuardOptions struct {
	// Clock measures by the machine. It is required.
	Clock clock.WithTicker
	// Metrics may be nil.
	Metrics *Metrics
	// Silence is for how long a watch may say nothing before it is ended and begun anew;
	// two and a half minutes when zero.
	Silence time.Duration
	// ListTimeout bounds a request for a list, or for a page of one; two minutes when zero.
	ListTimeout time.Duration
	// Pause is how long it takes until a list that may be wrong is asked for again; a
	// second when zero.
	Pause time.Duration
}

// Guard keeps informers from believing what an API server says by mistake, and from
// waiting for one that says nothing:
//
//   - A list that has lost more than half of the objects that were known is believed when
//     a second list says the same (I10). Until then everything stays as it was.
//   - A watch on which nothing comes, not even a bookmark, is begun anew from where it
//     was (I06). The same is done, after the usual backoff, when a watch is not even
//     answered. Only where it was to send what there is, a list is asked for instead.
//   - A list that does not come to an end is given up, and asked for anew after the usual
//     backoff (I12).
//
// It is goroutine-safe and can be shared by all informers of a process.
type Guard struct {
	options GuardOptions
}

// NewGuard returns a guard.
func NewGuard(options GuardOptions) *Guard {
	options.Silence = cmp.Or(options.Silence, defaultSilence)
	options.ListTimeout = cmp.Or(options.ListTimeout, defaultListTimeout)
	options.Pause = cmp.Or(options.Pause, defaultPause)
	if options.Metrics == nil {
		options.Metrics = NewMetrics(nil)
	}
	return &Guard{options: options}
}

// Option changes how an informer or a watch is made.
type Option func(*settings)

type settings struct {
	guard     *Guard
	namespace string
}

// Within has objects of one namespace alone followed, for users who may see no others; the
// empty one is all. It is for pods, budgets and claims.
func Within(namespace string) Option {
	return func(s *settings) { s.namespace = namespace }
}

// Guarded has a guard watch over the requests; nil for none.
func Guarded(guard *Guard) Option {
	return func(s *settings) { s.guard = guard }
}

func settingsOf(options []Option) settings {
	var s settings
	for _, option := range options {
		option(&s)
	}
	return s
}

// guarded is the lists and watches of one resource under a guard.
type guarded struct {
	GuardOptions

	resource string
	list     toolscache.ListWithContextFunc
	watch    toolscache.WatchFuncWithContext
	// known is the store of the informer, which is there before the first request; nil for none.
	known toolscache.Store

	mu sync.Mutex
	// listed counts the objects of the pages of the list that is under way.
	listed int
	// heard is when the API server last said something; zero for never.
	heard time.Time
	// left is true once nothing is followed any more.
	left bool
}

// over puts the lists and watches of a resource under the guard, which may be nil.
func (g *Guard) over(resource string, from *toolscache.ListWatch) *guarded {
	if g == nil {
		return nil
	}
	under := &guarded{GuardOptions: g.options, resource: resource, list: from.ListWithContextFunc, watch: from.WatchFuncWithContext}
	from.ListWithContextFunc, from.WatchFuncWithContext = under.List, under.Watch
	return under
}

// follow sets the store that has the known objects, and has the metrics tell for how long
// nothing was heard.
func (g *guarded) follow(store toolscache.Store) {
	if g == nil {
		return
	}
	g.known = store
	g.Metrics.mu.Lock()
	defer g.Metrics.mu.Unlock()
	g.Metrics.followed[g.resource] = g
}

// leave says that nothing is followed any more, and so nothing is silent.
func (g *guarded) leave() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
}

// List lists, or gets a page of a list. A reflector has one list at a time.
func (g *guarded) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := g.ask(ctx, options)
	if err != nil {
		return nil, err
	}
	g.note()
	return g.believe(ctx, options, list)
}

// ask makes one request for a list.
func (g *guarded) ask(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, g.ListTimeout)
	defer cancel()
	return g.list(ctx, options)
}

// Watch begins a watch.
func (g *guarded) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	parent, initial := ctx, ptr.Deref(options.SendInitialEvents, false)
	ctx, cancel := context.WithCancel(ctx)
	unanswered := g.Clock.NewTimer(g.Silence)
	answered := make(chan struct{})
	given := make(chan bool, 1)
	go func() {
		select {
		case <-unanswered.C():
			cancel()
			given <- true
		case <-answered:
			given <- false
		}
	}()
	events, err := g.watch(ctx, options)
	close(answered)
	unanswered.Stop()
	if <-given {
		g.Metrics.restarts.WithLabelValues(g.resource, restartUnanswered).Inc()
		if err == nil { // It was answered at the same moment, for a request that is cancelled.
			events.Stop()
		}
		switch {
		case parent.Err() != nil:
			err = parent.Err()
		case initial:
			// A stream that was to send what there is has nothing to go on from: the reflector
			// falls back to a list, which may be answered where such a stream is not.
			err = cmp.Or(err, context.Canceled)
		default:
			// As if the API server were too busy, the reflector waits and begins the watch again
			// from where it was. Any other error has it list everything anew, of an API server
			// that is slow already.
			err = apierrors.NewTooManyRequests(fmt.Sprintf("the API server did not answer a watch of %s for %s", g.resource, g.Silence), 0)
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	g.note()
	s := &stream{guarded: g, source: events, events: make(chan watch.Event), cancel: cancel, initial: initial}
	go s.run(ctx)
	return s, nil
}

// note takes down when the API server said something.
func (g *guarded) note() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = g.Clock.Now()
}

// silence returns for how long the API server has said nothing; false when
// nothing is followed.
func (g *guarded) silence() (time.Duration, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left || g.heard.IsZero() {
		return 0, false
	}
	return g.Clock.Since(g.heard), true
}
