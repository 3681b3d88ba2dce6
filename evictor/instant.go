package evictor

import "time"

// setBack is by how much a clock may be set back before earlier answers count as outdated. Small
// corrections of clocks are normal.
const setBack = 100 * time.Millisecond

// instant is a moment by both clocks of the machine. On Linux the monotonic clock stops while the
// machine is suspended; the wall clock continues, but can be set. Both are needed to measure the
// time that has passed.
type instant struct {
	// monotonic is the time with its monotonic reading, and wall the time without.
	monotonic, wall time.Time
}

// instantOf returns the instant of a time with a monotonic reading.
func instantOf(now time.Time) instant {
	return instant{monotonic: now, wall: now.Round(0)}
}

// elapsed returns the time from since to now: the smaller and the larger value of the two clocks.
func elapsed(since, now instant) (least, most time.Duration) {
	monotonic, wall := now.monotonic.Sub(since.monotonic), now.wall.Sub(since.wall)
	return min(monotonic, wall), max(monotonic, wall)
}

// within reports whether both clocks agree that since is at most age before now.
func within(age time.Duration, since, now instant) bool {
	least, most := elapsed(since, now)
	return least >= -setBack && most <= age
}
