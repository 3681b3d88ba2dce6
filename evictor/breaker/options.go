package breaker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Options configure a Keeper. The functions must not block.
type Options struct {
	API
	Cluster
	Lease

	// Clock has the time of the API server, Local that of this machine.
	Clock   clock.PassiveClock
	Local   clock.WithTicker
	Metrics *Metrics
}

// API reads and writes the objects of breakers.
type API struct {
	// Reader reads EvictionPolicies and EvictionApprovals from the API server, not from a cache.
	Reader client.Reader
	// Status writes their status.
	Status controller.StatusWriter
	// Approvals lists EvictionApprovals and may be a cache.
	Approvals client.Reader
	Recorder  controller.Recorder
}

// Cluster is the state of the cluster that breakers depend on.
type Cluster struct {
	// Policies returns the EvictionPolicies in force.
	Policies func() *eviction.Set
	// Live returns how many pods the cluster has that are neither finished nor
	// terminating.
	Live func() int
	// Standing returns the NoExecute taint with a key that a node or a rule has, or the
	// first and the last of the rules of a patch, of which the first counts: an approval
	// that was used for it is also for those that follow.
	Standing func(source tracker.Source, key string) (first, last tracker.Taint, ok bool)
}

// Lease is the lease of the leader.
type Lease struct {
	// Leads reports whether this replica still holds the lease. It is called before each
	// attempt to read and write a status.
	Leads func() bool
	// Timeout bounds an attempt with a permit, and an attempt of the keeper to read and write a
	// status. It must be no longer than the lease lasts after this replica stops to act as the
	// leader.
	Timeout time.Duration
}

// evictor is the evictor that evicts with the permits of a Keeper. Its methods must not
// block.
type evictor interface {
	// HeldByPolicy returns how many pods breakers hold, by the UID of each policy whose breaker
	// needs room for them. It is complete once Settled reports that all pods have been decided about in
	// this term of leadership.
	HeldByPolicy() map[types.UID]int
	Settled() bool
	// WakeHeld decides again about the held pods of a policy whose breaker was released, or some
	// of whose pods an approval may release.
	WakeHeld(policy types.UID)
}
