package ratelimit

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Queue is the queue of the pods that have to leave. Create it with NewQueue. All methods
// are goroutine-safe, and none blocks but Run. A pod makes one attempt at a time. The
// parameter now is the time of the machine.
type Queue struct {
	// changed has an entry when a pod may have to be called earlier than computed.
	changed chan struct{}

	mu      sync.Mutex
	buckets map[types.UID]*bucket
	// groups are the groups whose pods are called.
	groups []*group
	pods   map[tracker.Key]*entry
	// arrivals counts the pods that arrived.
	arrivals uint64
	// calls are the pods that were called, in the order of the calls, and untold those
	// that Next has not returned. Both may contain entries in another state.
	calls, untold []*entry
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	q := &Queue{changed: make(chan struct{}, 1)}
	q.Clear()
	return q
}

// Ask reports whether a pod may go now with these limits, which are in force from now on.
// If it may, the pod holds a token of each policy until Leave or StepAside, one of which
// has to follow. If not, it waits until it is called. A new pod is the last in the queue;
// a pod keeps its place when its limits change.
func (q *Queue) Ask(now time.Time, key tracker.Key, limits []Limit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	g := q.group(now, limits)
	e := q.pods[key]
	switch {
	case e == nil:
		q.arrivals++
		e = q.put(key, q.arrivals, g)
	case e.group != g:
		e = q.move(now, e, g)
	}
	q.call(now)
	if e.state == waiting {
		return false
	}
	e.state = going
	return true
}

// Waits reports whether a pod waits until it is called. One that stepped aside does not.
func (q *Queue) Waits(key tracker.Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pods[key]
	return e != nil && e.state == waiting && len(e.group.buckets) > 0
}

// Leave removes a pod from the queue. The tokens that it holds are used if it was evicted or
// if that is not known. Else they are available again.
func (q *Queue) Leave(now time.Time, key tracker.Key, evicted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.pods[key]; e != nil {
		q.remove(now, e, evicted)
	}
}

// StepAside returns the tokens of a pod that cannot go now. No pod waits for it, and it is
// not called. It keeps its place until it asks again or leaves.
func (q *Queue) StepAside(now time.Time, key tracker.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.pods[key]; e != nil {
		q.move(now, e, &group{}) // the pods of which are not called
	}
}

// Update sets the limits of all policies. Calls are withdrawn and made again. Pods that
// wait for a policy that has no limit any more are called, and have to ask with the limits
// that they have now.
func (q *Queue) Update(now time.Time, limits []Limit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.withdraw(now)
	current := map[types.UID]*bucket{}
	for _, limit := range limits {
		current[limit.Policy] = q.bucket(now, limit)
	}
	q.buckets = current
	unlimited := q.group(now, nil)
	q.groups = slices.DeleteFunc(q.groups, func(g *group) bool {
		outdated := slices.ContainsFunc(g.buckets, func(b *bucket) bool { return current[b.Policy] != b })
		for outdated && len(g.waiting) > 0 {
			q.move(now, g.waiting[0], unlimited)
		}
		return outdated
	})
	q.tell()
}

// Len returns the number of pods in the queue.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pods)
}

// Clear removes all pods and forgets which have left: a replica that does not lead any more
// does not know what the next leader does.
func (q *Queue) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.buckets, q.pods = map[types.UID]*bucket{}, map[tracker.Key]*entry{}
	q.groups, q.calls, q.untold = nil, nil, nil
}

// bucket returns the bucket of a policy, with that limit.
func (q *Queue) bucket(now time.Time, limit Limit) *bucket {
	b := q.buckets[limit.Policy]
	switch {
	case b == nil:
		b = &bucket{Limit: limit, used: map[tracker.Key]time.Time{}}
		q.buckets[limit.Policy] = b
	case b.Limit != limit:
		q.withdraw(now)
		b.change(now, limit)
	}
	return b
}

// group returns the group of the pods with these limits.
func (q *Queue) group(now time.Time, limits []Limit) *group {
	var buckets []*bucket
	for _, limit := range limits {
		buckets = append(buckets, q.bucket(now, limit))
	}
	slices.SortFunc(buckets, func(a, b *bucket) int { return cmp.Compare(a.Policy, b.Policy) })
	buckets = slices.Compact(buckets)
	for _, g := range q.groups {
		if slices.Equal(g.buckets, buckets) {
			return g
		}
	}
	g := &group{buckets: buckets}
	q.groups = append(q.groups, g)
	return g
}

// put has a pod wait in a group.
func (q *Queue) put(key tracker.Key, arrival uint64, g *group) *entry {
	e := &entry{key: key, arrival: arrival, group: g, state: waiting}
	q.pods[key] = e
	g.waiting = slices.Insert(g.waiting, g.position(e), e)
	q.tell()
	return e
}

// move has a pod that is in the queue wait in another group, in its place.
func (q *Queue) move(now time.Time, e *entry, g *group) *entry {
	q.remove(now, e, false)
	return q.put(e.key, e.arrival, g)
}

// remove removes a pod and settles the tokens that it holds.
func (q *Queue) remove(now time.Time, e *entry, used bool) {
	if e.state == waiting {
		e.group.drop(e)
	} else {
		for _, b := range e.group.buckets {
			b.settle(now, e.key, used)
		}
	}
	e.state = removed
	delete(q.pods, e.key)
	q.tell()
}

// withdraw has the pods that were called wait again: after a change of limits there may be
// fewer tokens, which are for the pods that arrived first.
func (q *Queue) withdraw(now time.Time) {
	for _, e := range q.calls {
		if e.state == called {
			q.move(now, e, e.group)
		}
	}
	q.calls, q.untold = nil, nil
}

// tell wakes Run.
func (q *Queue) tell() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}
