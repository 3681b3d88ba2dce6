package policies

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const (
	// settle is how long changes are gathered before the policies are compiled
	// again, so that thousands that arrive at once are compiled once.
	settle = 50 * time.Millisecond
	// retryPause is between two attempts at what could not be found out.
	retryPause = 500 * time.Millisecond
	// checkPause is between two looks whether the policies can be read at all, and whether
	// the watches have what is stored. A watch is not believed any more after two looks.
	checkPause = 30 * time.Second
)

// Start watches the policies until ctx is done.
func (s *Store) Start(ctx context.Context) error {
	s.next = policyset.None()
	for _, w := range s.watched {
		stop, ok := s.watch(ctx, w)
		if !ok {
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

// watch begins to watch a kind, and returns once all of it that there was is known.
func (s *Store) watch(ctx context.Context, w *watched) (stop func(), ok bool) {
	informer := s.informer(ctx, w)
	if informer == nil {
		return nil, false
	}
	changed := func() {
		w.dirty.Store(true)
		s.signal()
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil { // It says so when it has been stopped.
		return nil, false
	}
	stop = func() { _ = informer.RemoveEventHandler(registration) }
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, false
	}
	return stop, true
}

// informer returns what watches a kind; nil if ctx ends first. The definitions may
// be installed after Tollgate was, and the API server may be away.
func (s *Store) informer(ctx context.Context, w *watched) cache.Informer {
	const pause = 2 * time.Second
	told := ""
	for {
		informer, err := s.options.Cache.GetInformer(ctx, w.New(), cache.BlockUntilSynced(false))
		if err == nil {
			return informer
		}
		if told != err.Error() {
			told = err.Error()
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

// refresh puts into force what changed, all at once, and reports whether something is
// left to be found out. What is new does not wait for what is lost to be confirmed:
// it may be what makes up for it.
func (s *Store) refresh(ctx context.Context) (pending bool) {
	var losing []*watched
	for _, w := range s.watched {
		if !w.dirty.Swap(false) {
			continue
		}
		lost, err := s.take(ctx, w)
		if lost {
			losing = append(losing, w)
			continue
		}
		s.settled(ctx, w, err)
		pending = pending || err != nil
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
		s.settled(ctx, w, err)
		pending = pending || err != nil
	}
	s.publish(ctx)
	return pending
}

// use makes a list what is in force of its kind, once it is published.
func (s *Store) use(w *watched, list objects) {
	w.inForce, s.next = list, w.With(s.next, list)
	s.options.Metrics.observe(&w.Kind, s.next)
}

// settled notes how the changes of a kind were taken. With an error that is tried
// again.
func (s *Store) settled(ctx context.Context, w *watched, err error) {
	if err != nil {
		w.dirty.Store(true)
	}
	s.tell(ctx, w, &w.kept, err)
}

// publish puts into force what has been gathered of all kinds.
func (s *Store) publish(ctx context.Context) {
	if s.complete() && s.current.Load() != s.next {
		s.current.Store(s.next)
		s.audience.tell()
		logr.FromContextOrDiscard(ctx).V(1).Info("policies in force", "version", s.next.Version)
	}
}

// complete reports whether all kinds have been read once.
func (s *Store) complete() bool {
	for _, w := range s.watched {
		if w.inForce == nil {
			return false
		}
	}
	return true
}

// tell says once that the policies of a kind cannot be told, or can be again. Fault is
// where that is kept.
func (s *Store) tell(ctx context.Context, w *watched, fault *bool, err error) {
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
