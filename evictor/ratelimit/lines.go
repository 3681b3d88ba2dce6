package ratelimit

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Lines are the lines of all policies. Create them with NewLines. All methods are
// goroutine-safe and none blocks but Run. Now is the time of the machine.
type Lines struct {
	// changed has an entry when somebody may have to be called earlier than it looked.
	changed chan struct{}

	mu      sync.Mutex
	buckets map[types.UID]*bucket
	groups  map[string]*group
	pods    map[tracker.Key]*waiter
	arrived uint64
	// aside are the places of pods that stepped aside, by when they had come.
	aside map[tracker.Key]uint64
	// calls are the pods that were called, in that order, and some that have come or
	// left since.
	calls []*waiter
	// untold are those among them that Next has not returned yet.
	untold []*waiter
}

// NewLines returns lines in which nobody stands.
func NewLines() *Lines {
	return &Lines{
		changed: make(chan struct{}, 1),
		buckets: map[types.UID]*bucket{}, groups: map[string]*group{}, pods: map[tracker.Key]*waiter{},
		aside: map[tracker.Key]uint64{},
	}
}

// Ask is how a pod that has to leave now asks whether it may, as far as its limits go;
// without any it may. If so, a token of each is taken, and the ticket has to be settled
// after the attempt. If not, the pod waits until it is called, in the place that it has
// or, if it is new, at the end. It keeps its place when its limits change.
func (l *Lines) Ask(now time.Time, key tracker.Key, limits []Limit) (ticket Ticket, goes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse(now)
	w := l.pods[key]
	if len(limits) == 0 {
		delete(l.aside, key)
		if w != nil {
			l.remove(w)
			l.tell()
		}
		return Ticket{}, true
	}
	w = l.stand(w, key, l.group(now, orderly(limits)))
	l.call(now)
	if w.place < 0 && !w.mayTake(now) {
		l.recall(w)
	}
	if w.place >= 0 {
		if w.place == 0 || len(l.untold) > 0 {
			l.tell()
		}
		return Ticket{}, false
	}
	l.remove(w)
	if len(l.pods) > 0 {
		l.tell()
	}
	return l.take(w), true
}

// StepAside takes a pod out of the lines that cannot go now although it may be its turn.
// Nobody waits for it. When it asks again it has the place that it had.
func (l *Lines) StepAside(key tracker.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.pods[key]; w != nil {
		l.remove(w)
		l.aside[key] = w.arrival
		l.tell()
	}
}

// Leave takes a pod out of the lines, if it is there or stepped aside. That costs nothing.
func (l *Lines) Leave(_ time.Time, key tracker.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.aside, key)
	if w := l.pods[key]; w != nil {
		l.remove(w)
		l.tell()
	}
}

// Update tells of all limits that there are now. A pace that has changed holds from
// now on. Pods in lines that are no more are called, and have to ask with the limits
// that they have now.
func (l *Lines) Update(now time.Time, limits []Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[types.UID]struct{}, len(limits))
	for _, limit := range limits {
		known[limit.Policy] = struct{}{}
		if b := l.buckets[limit.Policy]; b != nil {
			b.change(now, limit)
		}
	}
	closed := map[*bucket]struct{}{}
	for policy, b := range l.buckets {
		if _, there := known[policy]; !there {
			closed[b] = struct{}{}
			delete(l.buckets, policy)
		}
	}
	l.dissolve(now, closed)
	l.tell()
}

// Waits reports whether a pod stands in lines.
func (l *Lines) Waits(key tracker.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[key] != nil
}

// Len returns how many pods stand in lines.
func (l *Lines) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods)
}

// Clear sends everybody away and forgets who has left: a replica that does not lead any
// more knows nothing of what the next one does.
func (l *Lines) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.buckets)
	clear(l.groups)
	clear(l.pods)
	clear(l.aside)
	l.calls, l.untold = nil, nil
}

// group returns the group of pods with these limits, which hold from now on.
func (l *Lines) group(now time.Time, limits []Limit) *group {
	name := nameOf(limits)
	g := l.groups[name]
	if g == nil {
		g = &group{name: name}
		l.groups[name] = g
	}
	for i, limit := range limits {
		b := l.buckets[limit.Policy]
		if b == nil {
			b = newBucket(limit)
			l.buckets[limit.Policy] = b
		}
		b.change(now, limit)
		if i == len(g.buckets) {
			g.buckets = append(g.buckets, b)
		}
	}
	return g
}

// stand puts a pod into a group, where it has the place of its arrival.
func (l *Lines) stand(w *waiter, key tracker.Key, g *group) *waiter {
	if w != nil && w.group == g {
		return w
	}
	arrival, stepped := l.aside[key]
	delete(l.aside, key)
	switch {
	case w != nil:
		arrival = w.arrival
		l.remove(w)
	case !stepped:
		l.arrived++
		arrival = l.arrived
	}
	g.members++
	l.groups[g.name] = g // removing the pod may have emptied it
	w = &waiter{key: key, arrival: arrival, group: g}
	l.pods[key] = w
	g.push(w)
	return w
}

// remove takes a pod out of its lines.
func (l *Lines) remove(w *waiter) {
	if w.place >= 0 {
		heap.Remove(&w.group.waiting, w.place)
	} else if w.reserved {
		w.group.reserve(-1)
		w.reserved = false
	}
	delete(l.pods, w.key)
	w.group.members--
	if w.group.members == 0 && l.groups[w.group.name] == w.group {
		delete(l.groups, w.group.name)
	}
}

// tell wakes Run.
func (l *Lines) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
