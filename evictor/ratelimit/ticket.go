package ratelimit

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Ticket is the leave of one pod to go. The zero Ticket, of a pod that nothing paces,
// is settled like any other.
type Ticket struct{ fare *fare }

// fare is what was paid for a ticket.
type fare struct {
	lines *Lines
	// key and arrival are those of the pod.
	key     tracker.Key
	arrival uint64
	buckets []*bucket
	settled bool
	// used are the tokens, one of each bucket, once they have been.
	used []used
}

// mayTake reports whether there is a token for a pod that was called in each of its
// lines. That is not so after a pace has been lowered.
func (w *waiter) mayTake(now time.Time) bool {
	for _, b := range w.group.buckets {
		if b.wait(now, 0) > 0 {
			return false
		}
	}
	return true
}

// take takes a token of each line.
func (l *Lines) take(w *waiter) Ticket {
	for _, b := range w.group.buckets {
		b.take()
	}
	return Ticket{fare: &fare{lines: l, key: w.key, arrival: w.arrival, buckets: w.group.buckets}}
}

// Settle ends the attempt that the ticket was for, when it can evict nobody any more. If
// it did not, the tokens come back. It is goroutine-safe, and only the first time counts.
func (t Ticket) Settle(now time.Time, evicted bool) {
	if t.fare == nil {
		return
	}
	lines := t.fare.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if t.fare.settled {
		return
	}
	t.fare.settled = true
	for _, b := range t.fare.buckets {
		b.settle(now, evicted)
		if evicted {
			t.fare.used = append(t.fare.used, b.last())
		}
	}
	if len(lines.pods) > 0 {
		lines.tell()
	}
}

// TakeBack takes back that a ticket was settled as used, for a pod that was given another one:
// it has not left by the first, and leaves once. Tokens that are there again already stay as
// they are. It is goroutine-safe, and only the first time counts.
func (t Ticket) TakeBack(now time.Time) {
	if t.fare == nil {
		return
	}
	lines := t.fare.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	for i, token := range t.fare.used {
		t.fare.buckets[i].takeBack(now, token)
	}
	t.fare.used = nil
	if len(lines.pods) > 0 {
		lines.tell()
	}
}

// StepAside ends an attempt that could not be made yet. The tokens come back, and when the
// pod asks again it has the place that it had.
func (t Ticket) StepAside(now time.Time) {
	if t.fare == nil {
		return
	}
	t.Settle(now, false)
	lines := t.fare.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	lines.aside[t.fare.key] = t.fare.arrival
}
