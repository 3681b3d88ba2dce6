// Package leader runs work that only one replica may do at a time.
//
// It differs from the leader election of controller-runtime in two ways. A replica that loses the
// lease stops leading and keeps running, because a short outage of the API server must not stop
// the admission webhook. And workers can check when the lease was last renewed: after a process
// was frozen, its workers still believe that they lead.
package leader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Durations are the durations of the lease; see leaderelection.LeaderElectionConfig.
type Durations struct {
	Lease, RenewDeadline, RetryPeriod time.Duration
}

// Runner runs work whenever this replica holds the lease. It is a runnable of a
// controller-runtime manager, on every replica.
type Runner struct {
	lock      *Lock
	durations Durations
	work      func(ctx context.Context) error
}

// NewRunner returns a Runner. Work must return when its context ends, and never runs twice at a
// time.
func NewRunner(lock *Lock, durations Durations, work func(ctx context.Context) error) *Runner {
	return &Runner{lock: lock, durations: durations, work: work}
}

// NeedLeaderElection is false: every replica takes part in the election.
func (r *Runner) NeedLeaderElection() bool { return false }

// Start takes part in the election until ctx is done, and returns when work has ended and the
// lease is released. It also returns the first error of work.
func (r *Runner) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.runTerm(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runTerm takes part in one election, and leads until the lease is lost or ctx is done. When ctx
// is done the lease is released after work has ended, so that it does not overlap with the next
// leader's.
func (r *Runner) runTerm(ctx context.Context) error {
	r.lock.Stand()
	election, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	log := logr.FromContextOrDiscard(ctx)
	var t term
	lead := func(held context.Context) {
		if !t.begin() {
			return
		}
		defer endElection()
		work, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(held, stop)()
		log.Info("leading")
		t.finish(r.work(work))
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            "tollgate",
		Lock:            r.lock,
		LeaseDuration:   r.durations.Lease,
		RenewDeadline:   r.durations.RenewDeadline,
		RetryPeriod:     r.durations.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() { log.V(1).Info("not leading") },
		},
	})
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		_ = t.end() // the error is returned below
		endElection()
	})()
	elector.Run(election)
	return t.end()
}

// term is the work of one term. The elector starts it on a goroutine of its own, perhaps after
// the term has ended.
type term struct {
	mutex sync.Mutex
	over  bool
	err   error
	work  sync.WaitGroup
}

// begin reports whether work may start; if so, finish must be called after it.
func (t *term) begin() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.over {
		t.work.Add(1)
	}
	return !t.over
}

func (t *term) finish(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.err = err
	t.work.Done()
}

// end prevents work from starting, waits until it has ended, and returns its error.
func (t *term) end() error {
	t.mutex.Lock()
	t.over = true
	t.mutex.Unlock()
	t.work.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.err
}

// Lock is a resourcelock.Interface that records when this replica last renewed the lease, and the
// last renewal before it became leader.
type Lock struct {
	resourcelock.Interface

	clock   clock.PassiveClock
	server  clock.PassiveClock
	renewed atomic.Pointer[time.Time]

	mu sync.Mutex
	// renewTime is when the lease was last renewed, by the clock of the API server; zero for
	// never.
	renewTime time.Time
	// holder is the holder identity of the last read or write.
	holder string
	// candidate is true while this replica does not lead; before is renewTime as of when it last
	// became leader.
	candidate bool
	before    time.Time
}

// New returns a Lock that writes through inner. Clock is the local clock, with which HeldWithin
// measures. RenewTime is written by the clock of the API server, so that it means the same to all
// replicas; candidates measure with their own clocks how long it is unchanged.
func New(inner resourcelock.Interface, clock, server clock.PassiveClock) *Lock {
	return &Lock{Interface: inner, clock: clock, server: server, candidate: true}
}

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewTime, l.holder = record.RenewTime.Time, record.HolderIdentity
	}
	return record, raw, err
}

// Stand marks this replica as a candidate.
func (l *Lock) Stand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.candidate = true
}

// Before returns the last renewal before this replica became leader, by the clock of the API
// server; zero for never.
func (l *Lock) Before() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update renews, acquires or releases the lease. It does not release a lease of another replica:
// client-go reads the lease before the release but then uses its old record, so a leader that was
// frozen past its lease would release that of its successor (U17). The write has the resource
// version of the last read, so a lease that changed since then causes a conflict.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	ours := l.holder == l.Identity()
	l.mu.Unlock()
	if record.HolderIdentity == "" && !ours {
		l.renewed.Store(nil)
		return nil
	}
	return l.write(ctx, record, l.Interface.Update)
}

// write calls update and records the time before it, because the lease counts from there.
func (l *Lock) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, update func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	before := l.clock.Now()
	record.RenewTime = metav1.NewTime(l.server.Now())
	if err := update(ctx, record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if record.HolderIdentity == l.Identity() {
		l.renewed.Store(&before)
		if l.candidate {
			l.candidate, l.before = false, l.renewTime
		}
	} else {
		l.renewed.Store(nil)
	}
	l.renewTime, l.holder = record.RenewTime.Time, record.HolderIdentity
	return nil
}

// HeldWithin reports whether the lease was renewed less than limit ago.
func (l *Lock) HeldWithin(limit time.Duration) bool {
	renewed := l.renewed.Load()
	return renewed != nil && elapsed(*renewed, l.clock.Now()) < limit
}

// elapsed returns the larger of the monotonic and the wall clock time between two moments: the
// monotonic clock stops while a machine is suspended, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
