package leader

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

const limit = 10 * time.Second

// fakeLock writes nowhere.
type fakeLock struct {
	resourcelock.Interface
	err error
}

func (f *fakeLock) Identity() string { return "me" }

func (f *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }

func (f *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }

func TestH05ALeaderThatWasFrozenNoLongerHolds(t *testing.T) {
	local := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	lock := New(&fakeLock{}, local)
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
	lock := New(inner, local)
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
	// The wall clock alone went on: a suspension, in which the monotonic clock
	// stands still. A time without a monotonic reading is compared by the wall.
	require.Equal(t, time.Hour, elapsed(now.Round(0), now.Round(0).Add(time.Hour)))
}
