package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// settle is how long changes are gathered before the policies are compiled
// again, so that thousands that arrive at once are compiled once.
const settle = 50 * time.Millisecond

// informers is what a Store needs of a cache.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// timer is what a Store needs of a clock.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// Store holds the policies in force. It is safe for concurrent use.
type Store struct {
	cache   informers
	clock   timer
	metrics *Metrics

	tolerations atomic.Pointer[tolerations.Set]
	changed     chan struct{}
}

// NewStore returns a store that is not ready before Start has read the policies
// once.
func NewStore(cache informers, clock timer, metrics *Metrics) *Store {
	return &Store{cache: cache, clock: clock, metrics: metrics, changed: make(chan struct{}, 1)}
}

// Tolerations returns the TolerationPolicies in force; nil before the first have
// been read.
func (s *Store) Tolerations() *tolerations.Set {
	return s.tolerations.Load()
}

// NeedLeaderElection is false: every replica judges.
func (s *Store) NeedLeaderElection() bool { return false }

// Ready is a readiness check: an error until the policies have been read once.
// A replica that answered without them would allow everything.
func (s *Store) Ready(*http.Request) error {
	if s.Tolerations() == nil {
		return errors.New("the policies have not been read yet")
	}
	return nil
}

// Start watches the policies until ctx is done.
func (s *Store) Start(ctx context.Context) error {
	informer, err := s.cache.GetInformer(ctx, &v1alpha1.TolerationPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch TolerationPolicies: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.signal() },
		UpdateFunc: func(any, any) { s.signal() },
		DeleteFunc: func(any) { s.signal() },
	})
	if err != nil {
		return fmt.Errorf("watch TolerationPolicies: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil // stopped before the policies were there
	}
	s.compile(ctx)
	for s.wait(ctx) {
		s.compile(ctx)
	}
	return nil
}

// wait returns true when there is something to compile, false when ctx is done.
func (s *Store) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.changed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.clock.After(settle):
		return true
	}
}

// signal never blocks: one signal that is not yet taken stands for all.
func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// compile puts the policies in the cache into force. What is in force stays when
// they cannot be read.
func (s *Store) compile(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	var list v1alpha1.TolerationPolicyList
	if err := s.cache.List(ctx, &list); err != nil {
		log.Error(err, "list TolerationPolicies")
		s.signal()
		return
	}
	set := tolerations.Compile(list.Items)
	s.tolerations.Store(set)
	s.metrics.observe(set)
	log.V(1).Info("policies in force", "tolerationpolicies", set.Len(), "notFullyInForce", len(set.Problems()))
}
