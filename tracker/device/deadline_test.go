package device_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

func TestDeadline(t *testing.T) {
	t.Parallel()
	added := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		added   time.Time
		seconds int64
		until   time.Time
		forever bool
	}{
		{name: "seconds count from the end of the second of the taint", added: added, seconds: 30, until: added.Add(31 * time.Second)},
		{name: "a part of a second is not counted twice", added: added.Add(999 * time.Millisecond), seconds: 30, until: added.Add(31 * time.Second)},
		{name: "DE-25 zero seconds are none", added: added, seconds: 0, until: added},
		{name: "DE-25 less than zero is none", added: added, seconds: math.MinInt64, until: added},
		{name: "DE-29 a taint in the future counts from there", added: added.Add(time.Hour), seconds: 1, until: added.Add(time.Hour + 2*time.Second)},
		{name: "DE-31 292 years are counted", added: added, seconds: 9_223_372_036, until: added.Add(9_223_372_036 * time.Second).Add(time.Second)},
		{name: "DE-31 a second more is for ever", added: added, seconds: 9_223_372_037, forever: true},
		{name: "DE-31 the most there is is for ever", added: added, seconds: math.MaxInt64, forever: true},
		{name: "DE-31 what would overflow to nothing is for ever", added: added, seconds: 1 << 62, forever: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			until, bounded := device.Deadline(test.added, test.seconds)
			require.Equal(t, !test.forever, bounded)
			require.Equal(t, test.until, until)
		})
	}
}
