package webhook_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// jumpyClock is the clock of a machine on which the time is set by an hour whenever it is looked at:
// forth, back, and to what it is.
type jumpyClock struct{ looks atomic.Int64 }

// Now implements clock.PassiveClock. The times have no monotonic reading that would hide the jumps.
func (j *jumpyClock) Now() time.Time {
	jump := []time.Duration{time.Hour, -time.Hour, 0}[j.looks.Add(1)%3]
	return time.Now().Round(0).Add(jump)
}

// Since implements clock.PassiveClock.
func (j *jumpyClock) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

// What Tollgate compares with a time of the cluster, it compares with the clock of the API server,
// which it estimates by its monotonic clock. The clock of its machine bounds how long answers of the
// API server are kept and how often it is asked, measures durations, and sets the deadlines of
// connections, which the operating system does not move. Certificates are the exception: a client and
// a server take one for expired, or not valid yet, by the clocks of their machines.
func TestE13AJumpOfTheClockOfTheMachineChangesNoAnswer(t *testing.T) {
	cluster := loadCluster(t)
	looks := int64(0)
	for _, r := range readCorpus(t) {
		t.Run(r.name, func(t *testing.T) {
			machine := &jumpyClock{}
			handler := handlerOf(cluster.configOn(t, r.Settings, machine))
			require.Equal(t, string(indented(t, r.Answer)), string(indented(t, r.ask(t, handler))))
			looks += machine.looks.Load()
		})
	}
	require.Greater(t, looks, int64(1000), "the clock is looked at")
}
