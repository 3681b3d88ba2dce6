package leader

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Lock is a resourcelock.Interface that remembers when this replica last wrote
// the lease as its own.
type Lock struct {
	resourcelock.Interface

	clock   clock.PassiveClock
	renewed atomic.Pointer[time.Time]
}

// New returns a Lock that writes through inner. Clock must be the local one, not
// one that is set by others.
func New(inner resourcelock.Interface, clock clock.PassiveClock) *Lock {
	return &Lock{Interface: inner, clock: clock}
}

// Create writes a new lease.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.remember(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update renews the lease, takes it over or gives it up.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.remember(record, func() error { return l.Interface.Update(ctx, record) })
}

// remember notes the time before write, because the lease counts from there.
func (l *Lock) remember(record resourcelock.LeaderElectionRecord, write func() error) error {
	before := l.clock.Now()
	if err := write(); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.renewed.Store(&before)
	} else {
		l.renewed.Store(nil)
	}
	return nil
}

// HeldWithin reports whether the lease was renewed less than limit ago.
func (l *Lock) HeldWithin(limit time.Duration) bool {
	renewed := l.renewed.Load()
	return renewed != nil && elapsed(*renewed, l.clock.Now()) < limit
}

// elapsed returns the time from one moment to another, by the monotonic clock or
// by the wall clock, whichever says that more has passed: the monotonic clock
// stands still while a machine is suspended, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
