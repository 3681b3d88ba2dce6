package policies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const (
	// settle is how long changes are gathered before the policies are compiled
	// again, so that thousands that arrive at once are compiled once.
	settle = 50 * time.Millisecond
	// retryPause is between two attempts after an error.
	retryPause = 500 * time.Millisecond
	// checkPause is between two looks whether the policies can be read at all, and whether
	// the watches have the stored policies. A watch is not believed any more after two looks.
	checkPause = 30 * time.Second
)

// reader lists policies.
type reader interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// informers is the part of a cache that a Store needs.
type informers interface {
	reader
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// discovery lists the resources that the API server serves.
type discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// timer is the part of a clock that a Store needs.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// Options configure a Store. All of them are required.
type Options struct {
	// Kinds are the kinds of policies in use.
	Kinds []policyset.Kind
	// Cache holds the policies, and Live reads them from the API server.
	Cache informers
	Live  reader
	// Discovery says whether policies can be created.
	Discovery discovery
	// Clock is that of this machine.
	Clock   timer
	Metrics *Metrics
}

// Store holds the policies in force. It is safe for concurrent use.
type Store struct {
	options Options
	watched []*watched
	current atomic.Pointer[policyset.Set]
	changed chan struct{}
	// next are the policies in force as soon as all kinds have been read. It is Start's.
	next *policyset.Set

	mu          sync.Mutex // guards subscribers
	subscribers map[chan struct{}]struct{}
}

// watched is a kind that is watched.
type watched struct {
	policyset.Kind

	// dirty is true while there are changes that have not been looked at.
	dirty atomic.Bool
	// inForce are the policies in force; nil before the first. Kept is true while more
	// are than are known to be stored, and unread while none can be read. They are
	// Start's.
	inForce      objects
	kept, unread bool
	// behind is true once the watch was found not to have the stored policies, and blind once
	// that lasts: the API server itself is read then, until the watch has caught up. They
	// are Start's.
	behind, blind bool
}

// NewStore returns a store that is not ready before Start has read the policies
// once.
func NewStore(options Options) *Store {
	s := &Store{options: options, changed: make(chan struct{}, 1), subscribers: map[chan struct{}]struct{}{}}
	for _, k := range options.Kinds {
		s.watched = append(s.watched, &watched{Kind: k})
	}
	return s
}

// Current returns the policies in force; nil before the first have been read.
func (s *Store) Current() *policyset.Set { return s.current.Load() }

// Subscribe returns a channel that holds something after the policies in force
// changed, until stop is called. Changes that were not received yet are one.
func (s *Store) Subscribe() (changed <-chan struct{}, stop func()) {
	subscriber := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[subscriber] = struct{}{}
	return subscriber, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, subscriber)
	}
}

// NeedLeaderElection is false: every replica judges.
func (s *Store) NeedLeaderElection() bool { return false }

// Ready is a readiness check: an error until the policies have been read once.
// A replica that answered without them would allow everything.
func (s *Store) Ready(*http.Request) error {
	if s.Current() == nil {
		return errors.New("the policies have not been read yet")
	}
	return nil
}

// signal never blocks: one signal that is not yet received stands for all.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Start watches the policies until ctx is done.
func (s *Store) Start(ctx context.Context) error {
	s.next = policyset.None()
	for _, w := range s.watched {
		stop := s.watch(ctx, w)
		if stop == nil {
			return nil // stopped before the policies were there
		}
		defer stop()
		w.dirty.Store(true)
	}
	check := s.options.Clock.After(checkPause)
	for {
		var retry <-chan time.Time
		if s.refresh(ctx) {
			retry = s.options.Clock.After(retryPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			s.pause(ctx, settle)
		case <-retry:
		case <-check:
			s.check(ctx)
			check = s.options.Clock.After(checkPause)
		}
	}
}

// watch begins to watch a kind, and returns once all of it that there was is known; nil if ctx ends
// first.
func (s *Store) watch(ctx context.Context, w *watched) (stop func()) {
	informer := s.informer(ctx, w)
	if informer == nil {
		return nil
	}
	changed := func(any) {
		w.dirty.Store(true)
		signal(s.changed)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
	})
	if err != nil { // It says so when it has been stopped.
		return nil
	}
	stop = func() { _ = informer.RemoveEventHandler(registration) }
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil
	}
	return stop
}

// informer returns the watch of a kind; nil if ctx ends first. The definitions may
// be installed after Tollgate was, and the API server may be away.
func (s *Store) informer(ctx context.Context, w *watched) cache.Informer {
	const pause = 2 * time.Second
	logged := ""
	for {
		informer, err := s.options.Cache.GetInformer(ctx, w.New(), cache.BlockUntilSynced(false))
		if err == nil {
			return informer
		}
		if logged != err.Error() {
			logged = err.Error()
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch policies yet", "kind", w.Name)
		}
		if !s.pause(ctx, pause) {
			return nil
		}
	}
}

// pause returns true after d, false when ctx is done first.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.options.Clock.After(d):
		return true
	}
}

// refresh puts the changes into force, all at once, and reports whether something is left to be
// found out. New policies do not wait for the confirmation of lost ones: they may make up for
// them.
func (s *Store) refresh(ctx context.Context) (pending bool) {
	var losing []*watched
	for _, w := range s.watched {
		if !w.dirty.Swap(false) {
			continue
		}
		list, err := s.source(ctx, w)
		if err == nil {
			// No policy goes out of force here: a loss is to be confirmed.
			both, lost := keep(w.inForce, list)
			s.use(w, both)
			if lost {
				losing = append(losing, w)
				continue
			}
		}
		pending = s.settled(ctx, w, err) || pending
	}
	s.publish(ctx)
	for _, w := range losing {
		list, err := s.confirm(ctx, w)
		if ctx.Err() != nil {
			return true
		}
		if err == nil {
			s.use(w, list)
		}
		pending = s.settled(ctx, w, err) || pending
	}
	s.publish(ctx)
	return pending
}

// use puts a list in force for its kind, once it is published.
func (s *Store) use(w *watched, list objects) {
	w.inForce, s.next = list, w.With(s.next, list)
	problems := w.Of(s.next).Problems()
	partly := 0
	for _, p := range list {
		// The policies that guards stand for are no objects, and count with their PlacementPolicy.
		if _, ok := problems[p.GetName()]; ok {
			partly++
		}
	}
	s.options.Metrics.observe(&w.Kind, len(list)-partly, partly)
}

// settled notes how the changes of a kind were taken. After an error, which it reports, they are taken
// again.
func (s *Store) settled(ctx context.Context, w *watched, err error) (again bool) {
	if err != nil {
		w.dirty.Store(true)
	}
	s.report(ctx, w, &w.kept, err)
	return err != nil
}

// publish puts the gathered policies of all kinds into force.
func (s *Store) publish(ctx context.Context) {
	unread := slices.ContainsFunc(s.watched, func(w *watched) bool { return w.inForce == nil })
	if !unread && s.current.Load() != s.next {
		s.current.Store(s.next)
		s.mu.Lock()
		for subscriber := range s.subscribers {
			signal(subscriber)
		}
		s.mu.Unlock()
		logr.FromContextOrDiscard(ctx).V(1).Info("policies in force", "version", s.next.Version)
	}
}

// report logs once that the policies of a kind cannot be read, or can be again. Fault holds which
// of them was logged last.
func (s *Store) report(ctx context.Context, w *watched, fault *bool, err error) {
	if *fault != (err != nil) {
		*fault = err != nil
		log := logr.FromContextOrDiscard(ctx).WithValues("kind", w.Name)
		if err != nil {
			log.Error(fmt.Errorf("read policies: %w", err), "the policies that were in force stay so")
		} else {
			log.Info("policies can be read again")
		}
	}
	s.options.Metrics.setStale(&w.Kind, w.kept || w.unread)
}
