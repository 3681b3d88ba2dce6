package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const (
	// lossPause is how long it takes, with room to spare, until the discovery of the
	// API server says that a definition is on its way out.
	lossPause = 300 * time.Millisecond
	// askTimeout bounds one question.
	askTimeout = 5 * time.Second
)

var (
	errUndefined = errors.New("the API server takes no more policies of this kind: its CustomResourceDefinition is deleted or on its way out")
	errBehind    = errors.New("the watch is behind what is stored")
)

// take puts the policies of a kind into force as they are stored, but takes none out
// of it: a loss, which it reports, is to be confirmed.
func (s *Store) take(ctx context.Context, w *watched) (lost bool, err error) {
	list, err := s.source(ctx, w)
	if err != nil {
		return false, err
	}
	list, lost = keep(w.inForce, list)
	s.use(w, list)
	return lost, nil
}

// confirm returns the policies of a kind once it is sure that what is lost has been
// deleted, as policies are, and not with the definition of its kind. An error means
// that what is lost stays in force.
func (s *Store) confirm(ctx context.Context, w *watched) (objects, error) {
	if !s.pause(ctx, lossPause) {
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := s.defined(ctx, w); err != nil {
		return nil, err
	}
	stored, err := w.read(ctx, s.options.Live)
	if err != nil {
		return nil, err
	}
	if w.blind {
		return stored, nil
	}
	// The watch may have been blind while the definition was replaced.
	list, err := w.cached(ctx, s.options.Cache)
	if err != nil {
		return nil, err
	}
	if !maps.Equal(stored.uids(), list.uids()) {
		return nil, errBehind
	}
	return list, nil
}

// defined returns an error if no policy of the kind could be created.
func (s *Store) defined(ctx context.Context, w *watched) error {
	served, err := s.options.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return errUndefined
	}
	if err != nil {
		return fmt.Errorf("ask what is served: %w", err)
	}
	if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
		return r.Name == w.Resource && slices.Contains(r.Verbs, "create")
	}) {
		return errUndefined
	}
	return nil
}
