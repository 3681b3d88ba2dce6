package breaker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// reader reads objects.
type reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// lister lists objects.
type lister interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// writer writes the status of objects.
type writer interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error
}

// recorder writes events. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// Options are what a Keeper works with. All but Approvals, Standing, Leads and Recorder
// are required. The functions must not block.
type Options struct {
	// Reader reads EvictionPolicies and EvictionApprovals as they stand: it is no cache.
	Reader reader
	// Status writes their status.
	Status writer
	// Approvals lists EvictionApprovals and may be a cache; nil where nothing is ever
	// approved.
	Approvals lister
	// Policies returns those in force.
	Policies func() *eviction.Set
	// Live returns how many pods the cluster has that are neither over nor on their way
	// out.
	Live func() int
	// Held returns how many pods the breaker of each policy holds. It is believed once
	// Settled reports that all pods have been looked at in this term of leadership.
	Held    func() map[types.UID]int
	Settled func() bool
	// Standing returns the NoExecute taint with a key that a node or a rule has, or the
	// first of the rules of a patch. Without it nothing is approved.
	Standing func(source tracker.Source, key string) (tracker.Taint, bool)
	// Released names a policy whose breaker does not hold any more, or some of whose pods
	// an approval may let go: they are to be asked about again.
	Released func(policy types.UID)
	// Leads reports whether this replica still holds the lease. It is asked before each
	// attempt to read and write a status; nil where nobody else can lead.
	Leads func() bool
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	// Timeout bounds an attempt that has a permit, and a request of the keeper. It must
	// be no longer than the lease lasts beyond the time for which this replica acts as
	// the leader.
	Timeout  time.Duration
	Recorder recorder
	Metrics  *Metrics
}
