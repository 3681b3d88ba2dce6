package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestElapsed(t *testing.T) {
	t.Parallel()
	// A reading of the real clock, which has a monotonic part.
	began := time.Now()
	for _, test := range []struct {
		name string
		// monotonic and wall are how far the two clocks went on.
		monotonic, wall time.Duration
		least, most     time.Duration
		within          bool
	}{
		{"no time has passed", 0, 0, 0, 0, true},
		{"as much time has passed as is allowed", 5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, true},
		{"more time has passed", 5*time.Second + 1, 5*time.Second + 1, 5*time.Second + 1, 5*time.Second + 1, false},
		{"H05 in a suspend the monotonic clock stands still", time.Second, 30 * time.Minute, time.Second, 30 * time.Minute, false},
		{"H05 a wall clock that is set back hides how much time has passed", time.Minute, time.Second, time.Second, time.Minute, false},
		{"H05 a wall clock that is set back past the beginning", time.Second, -time.Hour, -time.Hour, time.Second, false},
		{"H05 a wall clock that is set back during a suspend", time.Second, -time.Second, -time.Second, time.Second, false},
		{"a wall clock that is corrected by a little", 10 * time.Millisecond, -setBack, -setBack, 10 * time.Millisecond, true},
		{"a wall clock that is corrected by more", 10 * time.Millisecond, -setBack - 1, -setBack - 1, 10 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			since := instantOf(began)
			now := instant{monotonic: began.Add(test.monotonic), wall: began.Round(0).Add(test.wall)}
			least, most := elapsed(since, now)
			require.Equal(t, test.least, least)
			require.Equal(t, test.most, most)
			require.Equal(t, test.within, within(5*time.Second, since, now))
		})
	}
}

// TestInstantHasBothClocks pins what the two parts of an instant are compared by.
// A time that went through Unix has no monotonic reading, so that a difference to
// it is one of the wall clock.
func TestInstantHasBothClocks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	moment := instantOf(now)
	require.Equal(t, now, moment.monotonic)
	require.Equal(t, time.Unix(0, now.UnixNano()), moment.wall)
	require.NotEqual(t, moment.monotonic, moment.wall)
}
