package policies

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// reader lists policies.
type reader interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// informers is what a Store needs of a cache.
type informers interface {
	reader
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// discovery says what the API server serves.
type discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// timer is what a Store needs of a clock.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// Options are what a Store works with. All of them are required.
type Options struct {
	// Kinds are the kinds that are judged by.
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
	options  Options
	watched  []*watched
	current  atomic.Pointer[policyset.Set]
	changed  chan struct{}
	audience audience
	// next is what is in force as soon as all kinds have been read. It is Start's.
	next *policyset.Set
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
	// behind is true once the watch was found not to have what is stored, and blind once
	// that lasts: the API server itself is read then, until the watch has caught up. They
	// are Start's.
	behind, blind bool
}

// NewStore returns a store that is not ready before Start has read the policies
// once.
func NewStore(options Options) *Store {
	s := &Store{options: options, changed: make(chan struct{}, 1)}
	for _, k := range options.Kinds {
		s.watched = append(s.watched, &watched{Kind: k})
	}
	return s
}

// Current returns the policies in force; nil before the first have been read.
func (s *Store) Current() *policyset.Set { return s.current.Load() }

// Subscribe returns a channel that holds something after the policies in force
// changed, until stop is called. Changes that nobody has looked at yet are one.
func (s *Store) Subscribe() (changed <-chan struct{}, stop func()) { return s.audience.join() }

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

// signal never blocks: one signal that is not yet taken stands for all.
func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
