package ratelimit

import (
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
	// index is the position in the heap of the group while the pod waits.
	index int
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
// that wait is considered. It is a heap.Interface by arrival.
type group struct {
	buckets []*bucket
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

func (g *group) Len() int           { return len(g.waiting) }
func (g *group) Less(i, j int) bool { return g.waiting[i].arrival < g.waiting[j].arrival }

func (g *group) Swap(i, j int) {
	g.waiting[i], g.waiting[j] = g.waiting[j], g.waiting[i]
	g.waiting[i].index, g.waiting[j].index = i, j
}

// Push implements heap.Interface.
func (g *group) Push(x any) {
	if e, ok := x.(*entry); ok {
		e.index = len(g.waiting)
		g.waiting = append(g.waiting, e)
	}
}

// Pop implements heap.Interface.
func (g *group) Pop() any {
	last := len(g.waiting) - 1
	e := g.waiting[last]
	g.waiting[last] = nil
	g.waiting = g.waiting[:last]
	return e
}
