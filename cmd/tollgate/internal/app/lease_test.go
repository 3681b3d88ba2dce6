package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

const limit = 10 * time.Second

// fakeLock is a lease of one replica.
type fakeLock struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
	err    error
}

func (f *fakeLock) Identity() string { return "me" }

func (f *fakeLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.Update(ctx, record)
}

func (f *fakeLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if f.err == nil {
		f.record = record
	}
	return f.err
}

func (f *fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &f.record, nil, f.err
}

func TestH05ALeaderThatWasFrozenNoLongerHolds(t *testing.T) {
	local := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	lock := &Lock{Interface: &fakeLock{}, clock: local, server: local}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	require.False(t, lock.HeldWithin(limit), "before the first renewal")

	require.NoError(t, lock.Create(t.Context(), mine))
	require.True(t, lock.HeldWithin(limit))
	local.Step(limit - time.Second)
	require.True(t, lock.HeldWithin(limit))
	local.Step(30 * time.Minute)
	require.False(t, lock.HeldWithin(limit), "after a suspension")

	require.NoError(t, lock.Update(t.Context(), mine))
	require.True(t, lock.HeldWithin(limit), "after a renewal")
}

func TestALeaseThatIsGivenUpOrNotWrittenIsNotHeld(t *testing.T) {
	local := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	inner := &fakeLock{}
	lock := &Lock{Interface: inner, clock: local, server: local}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	require.NoError(t, lock.Update(t.Context(), mine))
	require.NoError(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
	require.False(t, lock.HeldWithin(limit), "given up")

	inner.err = errors.New("conflict")
	require.Error(t, lock.Update(t.Context(), mine))
	require.False(t, lock.HeldWithin(limit), "not written")
}

func TestH05TheLongerOfTwoClocksCounts(t *testing.T) {
	now := time.Now()
	require.Equal(t, time.Minute, elapsed(now, now.Add(time.Minute)))
	// Only the wall clock advanced: the machine was suspended and the monotonic clock stood
	// still.
	require.Equal(t, time.Hour, elapsed(now.Round(0), now.Round(0).Add(time.Hour)))
}

func TestItIsKnownUntilWhenThereWasALeader(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	local, server := clocktesting.NewFakeClock(began), clocktesting.NewFakeClock(began.Add(-time.Hour))
	pass := func(d time.Duration) {
		local.Step(d)
		server.Step(d)
	}
	inner := &fakeLock{}
	lock := &Lock{Interface: inner, clock: local, server: server}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(local.Now())}
	require.NoError(t, lock.Create(t.Context(), mine))
	require.True(t, lock.Before().IsZero(), "there was no lease")
	require.Equal(t, server.Now(), inner.record.RenewTime.Time, "it is told in the time of the API server")

	for range 10 {
		pass(time.Minute)
		require.NoError(t, lock.Update(t.Context(), mine))
	}
	require.True(t, lock.Before().IsZero(), "a renewal is no new term")
	last := server.Now()

	lock.Stand()
	pass(time.Hour)
	_, _, err := lock.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Update(t.Context(), mine))
	require.Equal(t, last, lock.Before(), "it led itself, up to then")

	lock.Stand()
	pass(time.Hour)
	other := server.Now()
	inner.record = resourcelock.LeaderElectionRecord{HolderIdentity: "other", RenewTime: metav1.NewTime(other)}
	_, _, err = lock.Get(t.Context())
	require.NoError(t, err)
	pass(time.Minute)
	require.NoError(t, lock.Update(t.Context(), mine))
	require.Equal(t, other, lock.Before())
}
