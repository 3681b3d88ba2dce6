package confirm

import "time"

// setBack is by how much a clock may be set back without what was read before
// being in doubt: clocks are corrected in small steps all the time.
const setBack = 100 * time.Millisecond

// Instant is a moment by both clocks of the machine. On Linux the monotonic clock
// stands still while the machine is suspended; the wall clock goes on, but can be
// set. Only together do they tell whether time has passed.
type Instant struct {
	// monotonic is the moment with its monotonic reading, wall the one without.
	monotonic, wall time.Time
}

// InstantOf returns the moment of a time with a monotonic reading.
func InstantOf(now time.Time) Instant {
	return Instant{monotonic: now, wall: now.Round(0)}
}

// elapsed returns how long it is from since to now: the least and the most that
// the two clocks say.
func elapsed(since, now Instant) (least, most time.Duration) {
	monotonic, wall := now.monotonic.Sub(since.monotonic), now.wall.Sub(since.wall)
	return min(monotonic, wall), max(monotonic, wall)
}

// within reports whether since is surely no longer than age before now.
func within(age time.Duration, since, now Instant) bool {
	least, most := elapsed(since, now)
	return least >= -setBack && most <= age
}
