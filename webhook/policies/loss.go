package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
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

// confirm returns the policies of a kind once it is sure that the lost ones have been
// deleted, as policies are, and not with the definition of their kind. An error means
// that the lost ones stay in force.
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
	if !sets.KeySet(stored.generations()).Equal(sets.KeySet(list.generations())) {
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

// check finds out whether the policies can be read, and whether the watches have the stored
// ones: an informer that cannot read goes on with its own, and so does one whose watch is open
// but brings nothing, and neither reports an error.
func (s *Store) check(ctx context.Context) {
	for _, w := range s.watched {
		stored, err := s.storedGenerations(ctx, w)
		if ctx.Err() != nil {
			return
		}
		s.report(ctx, w, &w.unread, err)
		if err != nil {
			continue
		}
		wasBlind := w.blind
		s.compare(ctx, w, stored)
		if wasBlind || w.blind { // No event says that something changed.
			w.dirty.Store(true)
		}
	}
}

// storedGenerations returns the generations of the policies of a kind, by UID, as the API server has
// them. It asks for metadata alone: the other fields are most of what a list costs.
func (s *Store) storedGenerations(ctx context.Context, w *watched) (map[types.UID]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(w.Name + "List"))
	if err := s.options.Live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list %s: %w", w.Resource, err)
	}
	generations := make(map[types.UID]int64, len(list.Items))
	for _, item := range list.Items {
		generations[item.UID] = item.Generation
	}
	return generations, nil
}

// compare notes whether the watch of a kind has the stored policies. One that is missing at one
// look may be on its way; one that is missing at two in a row is not believed to come.
func (s *Store) compare(ctx context.Context, w *watched, stored map[types.UID]int64) {
	cached, err := w.cached(ctx, s.options.Cache)
	if err != nil {
		return // The next change is read again, and reports the error.
	}
	if maps.Equal(stored, cached.generations()) {
		if w.blind {
			logr.FromContextOrDiscard(ctx).Info("the watch of policies brings what is stored again", "kind", w.Name)
		}
		w.behind, w.blind = false, false
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

// source returns the known policies of a kind: those of the watch, or those of the API server
// while the watch is blind. A blind watch may have older policies than are in force, also when it
// begins to catch up, so they are not taken before it has all.
func (s *Store) source(ctx context.Context, w *watched) (objects, error) {
	if !w.blind {
		return w.cached(ctx, s.options.Cache)
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stored, err := w.read(asking, s.options.Live)
	if err == nil {
		s.compare(ctx, w, stored.generations())
	}
	return stored, err
}

// objects are policies of one kind.
type objects []policyset.Object

// cached returns the policies of a kind that are in a cache. They belong to the cache and
// must not be written to.
func (w *watched) cached(ctx context.Context, from reader) (objects, error) {
	return w.read(ctx, from, client.UnsafeDisableDeepCopy)
}

// read returns the policies of a kind, not nil without an error.
func (w *watched) read(ctx context.Context, from reader, opts ...client.ListOption) (objects, error) {
	list := w.NewList()
	if err := from.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %s: %w", w.Resource, err)
	}
	return w.Items(list), nil
}

// generations returns the generations of policies by their UIDs.
func (o objects) generations() map[types.UID]int64 {
	generations := make(map[types.UID]int64, len(o))
	for _, p := range o {
		generations[p.GetUID()] = p.GetGeneration()
	}
	return generations
}

// keep returns the stored policies together with those in force that are lost: neither they
// nor others of their names are stored. It reports whether there are such.
func keep(inForce, stored objects) (both objects, lost bool) {
	names := make(sets.Set[string], len(stored))
	for _, p := range stored {
		names.Insert(p.GetName())
	}
	both = slices.Clone(stored)
	for _, p := range inForce {
		if !names.Has(p.GetName()) {
			both = append(both, p)
		}
	}
	return both, len(both) > len(stored)
}
