package ratelimit

import (
	"container/heap"
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// group is the pods that stand in the same lines, those that wait in the order in
// which they came. All of them need the same tokens, so only the first matters.
type group struct {
	name    string
	buckets []*bucket
	waiting queue
	// members counts those that wait and those that were called.
	members int
}

// waiter is a pod that stands in lines.
type waiter struct {
	key tracker.Key
	// arrival orders pods by when they came.
	arrival uint64
	group   *group
	// place is where it stands in the queue of its group, -1 when it was called.
	place int
	// called is when it was called. While reserved is true a token of each of its lines
	// is kept for it.
	called   time.Time
	reserved bool
}

// wait returns how long it takes until the first pod could go.
func (g *group) wait(now time.Time) time.Duration {
	var longest time.Duration
	for _, b := range g.buckets {
		longest = max(longest, b.wait(now, b.called))
	}
	return longest
}

// delays reports whether the first pod, if it went now, would put off the first one of
// another group, which can go after a while.
func (g *group) delays(now time.Time, other *group, in time.Duration) bool {
	for _, b := range g.buckets {
		for _, theirs := range other.buckets {
			if b == theirs && b.wait(now, b.called+1) > in {
				return true
			}
		}
	}
	return false
}

// reserve keeps a token of each line for a pod, or gives that up.
func (g *group) reserve(pods int) {
	for _, b := range g.buckets {
		b.called += pods
	}
}

func (g *group) push(w *waiter) { heap.Push(&g.waiting, w) }

// queue is a heap by arrival: a heap.Interface.
type queue []*waiter

func (q *queue) Len() int           { return len(*q) }
func (q *queue) Less(i, j int) bool { return (*q)[i].arrival < (*q)[j].arrival }

func (q *queue) Swap(i, j int) {
	pods := *q
	pods[i], pods[j] = pods[j], pods[i]
	pods[i].place, pods[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if w, ok := x.(*waiter); ok {
		w.place = len(*q)
		*q = append(*q, w)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.place = -1
	return w
}
