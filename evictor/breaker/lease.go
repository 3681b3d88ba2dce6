package breaker

import "time"

// lease is what is left of leave that was written and of which this replica hands out
// permits.
type lease struct {
	// until names the grant in the state, and end is when it ends here.
	until, end time.Time
	// usable is until when permits are handed out: they are to be over by the end.
	usable time.Time
	// size is how many pods were granted and not given back: those who went, and
	// room, how many permits are left; back, what is left and is not handed out any
	// more, but given back; and open, how many permits are handed out and not settled.
	size, room, back, open int
}

// good reports whether permits can be handed out at now. The wall clock has its say
// since the other one stands still while the machine is suspended.
func (l *lease) good(now time.Time) bool {
	return now.Before(l.usable) && now.Round(0).Before(l.usable.Round(0))
}

// leases are in the order in which they were made.
type leases []*lease

// room returns how many permits can be handed out at now.
func (all leases) room(now time.Time) int {
	room := 0
	for _, l := range all {
		if l.good(now) {
			room += l.room
		}
	}
	return room
}

// unused returns how much room there is, whether or not it can be handed out.
func (all leases) unused() int {
	unused := 0
	for _, l := range all {
		unused += l.room + l.back
	}
	return unused
}

// open returns how many permits are handed out at now. One that is not settled by the
// end of its lease is as good as used.
func (all leases) open(now time.Time) int {
	open := 0
	for _, l := range all {
		if now.Before(l.end) {
			open += l.open
		}
	}
	return open
}

// take hands out a permit of the oldest lease that has room; nil if none has.
func (all leases) take(now time.Time) *lease {
	for _, l := range all {
		if l.room > 0 && l.good(now) {
			l.room--
			l.open++
			return l
		}
	}
	return nil
}

// withdraw has what is left of leases whose time is over given back, and so much more.
func (all leases) withdraw(now time.Time, more int) {
	for _, l := range all {
		n := l.room
		if l.good(now) {
			n = min(n, max(more, 0))
			more -= n
		}
		l.room -= n
		l.back += n
	}
}

// settle takes a permit back.
func (l *lease) settle(evicted bool) {
	l.open--
	if !evicted {
		l.room++
	}
}
