package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// sharedLease is a lease in memory that several replicas share.
type sharedLease struct {
	mutex   sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	// holders are the holder identities of all writes, in order.
	holders []string
	away    bool
}

func (s *sharedLease) holder() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.record == nil {
		return ""
	}
	return s.record.HolderIdentity
}

// written returns the holders of all writes.
func (s *sharedLease) written() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.holders)
}

func (s *sharedLease) setAway(away bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.away = away
}

var errAway = errors.New("the API server is away")

// leaseOf is the lease as one replica uses it. As with a real one, a write with an old resource
// version fails.
type leaseOf struct {
	*sharedLease

	identity string
	seen     int
	// frozen is closed when the replica continues; nil while it is not frozen. Guarded by the
	// mutex of the lease.
	frozen chan struct{}
}

func (l *leaseOf) Identity() string   { return l.identity }
func (l *leaseOf) Describe() string   { return "lease" }
func (l *leaseOf) RecordEvent(string) {}

// freeze blocks the requests of the replica until the returned function is called.
func (l *leaseOf) freeze() (thaw func()) {
	frozen := make(chan struct{})
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.frozen = frozen
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.frozen = nil
		close(frozen)
	}
}

// begin locks the lease for a request, unless the API server is down, or the request expired
// while the replica was frozen.
func (l *leaseOf) begin(ctx context.Context) error {
	l.mutex.Lock()
	for l.frozen != nil {
		frozen := l.frozen
		l.mutex.Unlock()
		<-frozen
		l.mutex.Lock()
	}
	err := ctx.Err()
	if l.away {
		err = errAway
	}
	if err != nil {
		l.mutex.Unlock()
	}
	return err
}

func (l *leaseOf) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer l.mutex.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	l.seen = l.version
	record := *l.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (l *leaseOf) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *leaseOf) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.mutex.Unlock()
	if l.seen != l.version {
		return apierrors.NewConflict(schema.GroupResource{}, "lease", errors.New("it was changed"))
	}
	l.version++
	l.seen, l.record, l.holders = l.version, &record, append(l.holders, record.HolderIdentity)
	return nil
}

var durations = configv1alpha1.LeaderElectionConfiguration{
	LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
	RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
	RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
}

// replica is a candidate whose work waits for the end of its context.
type replica struct {
	lock    *Lock
	lease   *leaseOf
	working atomic.Bool
	runs    atomic.Int32
	done    chan error
	stop    context.CancelFunc
}

func (r *replica) leads() bool { return r.lock.HeldWithin(durations.RenewDeadline.Duration) }

func startReplica(t *testing.T, lease *sharedLease, name string) *replica {
	t.Helper()
	own := &leaseOf{sharedLease: lease, identity: name}
	r := &replica{done: make(chan error, 1), lease: own, lock: &Lock{Interface: own, clock: clock.RealClock{}, server: clock.RealClock{}}}
	work := func(ctx context.Context) error {
		r.runs.Add(1)
		r.working.Store(true)
		<-ctx.Done()
		time.Sleep(time.Second) // work takes a moment to end
		r.working.Store(false)
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.done <- r.lock.Lead(ctx, &durations, work) }()
	return r
}

func TestOneReplicaLeadsAndTheNextFollowsWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &sharedLease{}
		a := startReplica(t, lease, "a")
		time.Sleep(time.Minute)
		b := startReplica(t, lease, "b")
		time.Sleep(time.Minute)
		require.True(t, a.working.Load())
		require.True(t, a.leads())
		require.False(t, b.working.Load())
		require.False(t, b.leads())

		a.stop()
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, "a", lease.holder(), "the lease is kept while work is under way")
		require.NoError(t, <-a.done)
		require.False(t, a.working.Load())
		time.Sleep(5 * time.Second) // client-go stretches the retry period of 2 s by up to 1.2 times itself
		require.True(t, b.working.Load(), "it need not wait for the lease to expire")
		b.stop()
		require.NoError(t, <-b.done)
	})
}

func TestJ06U17ALeaderThatWasFrozenLeavesTheLeaseToItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &sharedLease{}
		a := startReplica(t, lease, "a")
		time.Sleep(time.Minute)
		b := startReplica(t, lease, "b")
		thaw := a.lease.freeze()
		time.Sleep(time.Minute)
		require.True(t, b.working.Load(), "its successor leads")
		require.False(t, a.leads())
		since := len(lease.written())

		thaw()
		time.Sleep(time.Minute)
		require.Subset(t, []string{"b"}, lease.written()[since:], "nobody else has written the lease")
		require.True(t, b.leads())
		require.Equal(t, int32(1), b.runs.Load(), "its term was not broken")
		require.False(t, a.leads())
		require.False(t, a.working.Load())

		b.stop()
		require.NoError(t, <-b.done)
		time.Sleep(5 * time.Second)
		require.True(t, a.working.Load(), "it can lead again when its turn comes")
		require.True(t, a.leads())
		a.stop()
		require.NoError(t, <-a.done)
	})
}

func TestALeaderThatLosesTheLeaseGoesOnAndLeadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &sharedLease{}
		a := startReplica(t, lease, "a")
		time.Sleep(time.Minute)
		lease.setAway(true)
		time.Sleep(12 * time.Second)
		require.False(t, a.leads(), "nobody may act on a lease that could not be renewed")
		time.Sleep(time.Minute)
		require.False(t, a.working.Load())
		require.Empty(t, a.done, "the process goes on")

		lease.setAway(false)
		time.Sleep(time.Minute)
		require.True(t, a.working.Load())
		require.Equal(t, int32(2), a.runs.Load())
		a.stop()
		require.NoError(t, <-a.done)
	})
}

func TestAnErrorOfTheWorkEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &sharedLease{}
		broken := errors.New("broken")
		lock := &Lock{Interface: &leaseOf{sharedLease: lease, identity: "a"}, clock: clock.RealClock{}, server: clock.RealClock{}}
		require.ErrorIs(t, lock.Lead(t.Context(), &durations, func(context.Context) error { return broken }), broken)
		require.Empty(t, lease.holder(), "the lease is given back")
	})
}

func TestAReplicaThatNeverLedStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &sharedLease{}
		lease.setAway(true)
		a := startReplica(t, lease, "a")
		time.Sleep(time.Minute)
		a.stop()
		require.NoError(t, <-a.done)
		require.Zero(t, a.runs.Load())
	})
}
