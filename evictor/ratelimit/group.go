package ratelimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// entry is a pod in the queue.
type entry struct {
	key tracker.Key
	// arrival is the position of the pod in the order of arrival.
	arrival uint64
	group   *group
	state   state
	// called is when the pod was called.
	called time.Time
}

type state int

const (
	// removed is the state of an entry that is not in the queue any more.
	removed state = iota
	// waiting is the state of a pod that has no tokens.
	waiting
	// called is the state of a pod that holds a token of each bucket and has to ask.
	called
	// going is the state of a pod that holds these tokens for an attempt.
	going
)

// group is the pods that need a token of each of the same buckets. Only the first of those
// that wait is considered.
type group struct {
	buckets []*bucket
	// waiting is in the order of arrival.
	waiting []*entry
}

// wait returns the time until all buckets have a token.
func (g *group) wait(now time.Time) time.Duration {
	var longest time.Duration
	for _, b := range g.buckets {
		longest = max(longest, b.wait(now, 0))
	}
	return longest
}

// delays reports whether a pod that takes its tokens now delays the first pod of another
// group, which can go after the time that blocked has for it.
func (g *group) delays(now time.Time, blocked map[*group]time.Duration) bool {
	for other, in := range blocked {
		for _, b := range g.buckets {
			if slices.Contains(other.buckets, b) && b.wait(now, 1) > in {
				return true
			}
		}
	}
	return false
}

// drop ends that a pod waits.
func (g *group) drop(e *entry) {
	if at := g.position(e); at > 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
		return
	}
	g.waiting = g.waiting[1:] // Without moving all others.
}

func (g *group) position(e *entry) int {
	at, _ := slices.BinarySearchFunc(g.waiting, e, func(a, b *entry) int { return cmp.Compare(a.arrival, b.arrival) })
	return at
}
