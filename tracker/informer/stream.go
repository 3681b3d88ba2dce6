package informer

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream passes on the events of a watch, and ends when none come.
type stream struct {
	*guarded

	source watch.Interface
	events chan watch.Event
	// cancel ends the request and the stream.
	cancel context.CancelFunc
	// initial is true while the stream sends what there is, instead of a list (KEP-3157);
	// found counts that.
	initial bool
	found   int
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface.
func (s *stream) Stop() { s.cancel() }

func (s *stream) run(ctx context.Context) {
	defer close(s.events)
	defer s.cancel()
	defer s.source.Stop()
	timer := s.Clock.NewTimer(s.Silence)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			silence, listening := s.silence()
			if rest := s.Silence - silence; listening && rest > 0 {
				timer.Reset(rest)
				continue
			}
			if listening {
				s.Metrics.restarts.WithLabelValues(s.resource, restartSilent).Inc()
				logr.FromContextOrDiscard(ctx).Info("watch says nothing, not even that it is alive, beginning it anew",
					"resource", s.resource, "silence", silence.String())
			}
			return
		case event, open := <-s.source.ResultChan():
			if !open || !s.pass(ctx, event) {
				return
			}
			// Taken down after it was passed on: the receiver may be slow.
			s.note()
		}
	}
}

// pass passes on an event, and returns false when it was the last one.
func (s *stream) pass(ctx context.Context, event watch.Event) bool {
	if s.initial {
		switch {
		case event.Type == watch.Added:
			s.found++
		case event.Type == watch.Bookmark && endsInitial(event):
			s.initial = false
			if err := s.confirmed(ctx, s.found); err != nil {
				// The informer drops what the stream sent, and lists.
				s.send(ctx, watch.Event{Type: watch.Error, Object: new(apierrors.NewInternalError(err).Status())})
				return false
			}
		}
	}
	return s.send(ctx, event)
}

func (s *stream) send(ctx context.Context, event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// endsInitial reports whether a bookmark says that all that there is has been sent.
func endsInitial(event watch.Event) bool {
	object, err := meta.Accessor(event.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
