package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Lock is a resourcelock.Interface that records when this replica last renewed the lease, and the
// last renewal before it became leader.
type Lock struct {
	resourcelock.Interface

	// clock is the local clock, with which HeldWithin measures. RenewTime is written by server, the
	// clock of the API server, so that it means the same to all replicas; candidates measure with
	// their own clocks how long it is unchanged.
	clock, server clock.PassiveClock

	renewed atomic.Pointer[time.Time]

	mu sync.Mutex
	// renewTime is when the lease was last renewed, by the clock of the API server; zero for
	// never.
	renewTime time.Time
	// holder is the holder identity of the last read or write.
	holder string
	// leading is true from the first write as the leader to the next Stand; before is renewTime as
	// of when this replica last became leader.
	leading bool
	before  time.Time
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
	l.leading = false
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
		if !l.leading {
			l.leading, l.before = true, l.renewTime
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
