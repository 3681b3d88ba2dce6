package leader

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Lock is a resourcelock.Interface that remembers when this replica last wrote
// the lease as its own, and until when there was a leader before.
type Lock struct {
	resourcelock.Interface

	clock   clock.PassiveClock
	server  clock.PassiveClock
	renewed atomic.Pointer[time.Time]

	mu sync.Mutex
	// heard is when the lease was last renewed, by the clock of the API server; zero if
	// there never was one.
	heard time.Time
	// holder is who held the lease when it was last read or written here.
	holder string
	// standing is true while this replica does not lead, and before is heard as it was
	// when it last came to lead.
	standing bool
	before   time.Time
}

// New returns a Lock that writes through inner. Clock must be the local one, not
// one that is set by others. The times that it writes are of the clock of the API
// server, so that all replicas mean the same by them; who stands for election measures
// by its own clock since when they have not changed.
func New(inner resourcelock.Interface, clock, server clock.PassiveClock) *Lock {
	return &Lock{Interface: inner, clock: clock, server: server, standing: true}
}

// Get reads the lease.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.hear(record)
	}
	return record, raw, err
}

// Stand says that this replica does not lead, and will do what it can to.
func (l *Lock) Stand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standing = true
}

// Before returns when the lease was last renewed before this replica came to lead, by
// the clock of the API server; zero if never.
func (l *Lock) Before() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before
}

// hear takes in what the lease says, or is made to say.
func (l *Lock) hear(record *resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.holder = record.RenewTime.Time, record.HolderIdentity
}

// isAnothers reports whether somebody else held the lease when it was last seen.
func (l *Lock) isAnothers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder != l.Identity()
}

// lead takes in that the lease is this replica's.
func (l *Lock) lead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.standing {
		l.standing, l.before = false, l.heard
	}
}

// Create writes a new lease.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.remember(record, func(record resourcelock.LeaderElectionRecord) error { return l.Interface.Create(ctx, record) })
}

// Update renews the lease, takes it over or gives it up. A lease that is another one's is
// not given up: client-go reads it before it gives it up, and then goes by what it knew
// before, so a leader that was frozen past its lease would take it away from its
// successor (U17). What is written goes on from what was read, so nobody can have taken
// the lease in between.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.isAnothers() {
		l.renewed.Store(nil)
		return nil
	}
	return l.remember(record, func(record resourcelock.LeaderElectionRecord) error { return l.Interface.Update(ctx, record) })
}

// remember notes the time before write, because the lease counts from there.
func (l *Lock) remember(record resourcelock.LeaderElectionRecord, write func(resourcelock.LeaderElectionRecord) error) error {
	before := l.clock.Now()
	record.RenewTime = metav1.NewTime(l.server.Now())
	if err := write(record); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.lead()
		l.renewed.Store(&before)
	} else {
		l.renewed.Store(nil)
	}
	l.hear(&record)
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
