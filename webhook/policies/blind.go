package policies

import (
	"context"
	"maps"

	"github.com/go-logr/logr"
)

// check finds out whether the policies can be read, and whether the watches have what is
// stored: an informer that cannot read goes on with what it has, and so does one whose
// watch is open but brings nothing, and neither says anything.
func (s *Store) check(ctx context.Context) {
	for _, w := range s.watched {
		stored, err := s.live(ctx, w)
		if ctx.Err() != nil {
			return
		}
		s.tell(ctx, w, &w.unread, err)
		if err != nil {
			continue
		}
		wasBlind := w.blind
		s.compare(ctx, w, stored)
		if wasBlind || w.blind { // Nobody else says that something changed.
			w.dirty.Store(true)
		}
	}
}

// live returns the policies of a kind as the API server has them.
func (s *Store) live(ctx context.Context, w *watched) (objects, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.read(ctx, s.options.Live)
}

// compare notes whether the watch of a kind has what is stored. What is missing at one
// look may be on its way; what is missing at two in a row is not believed to come.
func (s *Store) compare(ctx context.Context, w *watched, stored objects) {
	cached, err := w.cached(ctx, s.options.Cache)
	if err != nil {
		return // Whatever changes is asked for again, and that says so.
	}
	if maps.Equal(stored.generations(), cached.generations()) {
		s.caughtUp(ctx, w)
		return
	}
	if w.behind && !w.blind {
		w.blind = true
		s.options.Metrics.blind.WithLabelValues(w.Name).Inc()
		logr.FromContextOrDiscard(ctx).Info("the watch of policies does not bring what is stored, reading them from the API server until it does",
			"kind", w.Name)
	}
	w.behind = true
}

func (s *Store) caughtUp(ctx context.Context, w *watched) {
	if w.blind {
		logr.FromContextOrDiscard(ctx).Info("the watch of policies brings what is stored again", "kind", w.Name)
	}
	w.behind, w.blind = false, false
}

// source returns the policies of a kind as far as they are known: those of the watch, or
// those of the API server while the watch is blind. What a blind watch has may be older
// than what is in force, also when it begins to catch up, so it is not taken before it
// has all of it.
func (s *Store) source(ctx context.Context, w *watched) (objects, error) {
	if !w.blind {
		return w.cached(ctx, s.options.Cache)
	}
	stored, err := s.live(ctx, w)
	if err == nil {
		s.compare(ctx, w, stored)
	}
	return stored, err
}
