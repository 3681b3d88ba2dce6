// Package loops finds pods that come back to be evicted again, and slows them down.
//
// A controller replaces a pod that was evicted. If the new one tolerates the taint for
// a while, or was bound to the node by name, it lands on what is tainted, is evicted
// and replaced, for ever (J12). Kubernetes does that as fast as it can.
//
// What counts are rounds. A round begins when a pod is evicted that came after the
// round before it had begun; a pod that was there before the taint is in none. So a
// workload of 50 replicas that is evicted is one round and not 50 evictions, and only
// what comes back makes another. From the fourth round within ten minutes on the next
// one has to wait, 10 seconds after the one before it, then 20, up to 5 minutes. After
// half an hour without an eviction all is forgotten.
//
// A round is of one controller and one taint: of a DeviceTaintRule, or of a key on
// any node or in any slice, because pods go from one tainted node to the next. Pods
// without a controller do not come back.
package loops

import (
	"container/list"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// freeRounds is how many rounds there may be within freeWithin before pods wait.
	freeRounds = 3
	freeWithin = 10 * time.Minute
	// shortestWait is how long after a round the next may begin, at first. It doubles
	// with each round, up to longestWait.
	shortestWait = 10 * time.Second
	longestWait  = 5 * time.Minute
	// quiet is after how long without an eviction a loop is over.
	quiet = 30 * time.Minute
	// mostKnown bounds what is remembered. What was not evicted for longest is forgotten
	// first.
	mostKnown = 10_000
)

// Loop is what is known of pods that come back.
type Loop struct {
	// Until is when the next round may begin.
	Until time.Time
	// Rounds is how often pods came back, and Pods how many were evicted, since Since.
	Rounds, Pods int
	Since        time.Time
	// OwnerKind is the kind of their controller.
	OwnerKind string
}

// String says it in a sentence without an end, as for an event.
func (l Loop) String() string {
	return fmt.Sprintf("pods of a %s come back to be evicted again: %s in %d rounds since %s",
		l.OwnerKind, pods(l.Pods), l.Rounds, l.Since.UTC().Format(time.RFC3339))
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return strconv.Itoa(n) + " pods"
}

// Watch watches for loops. Create it with NewWatch. It is goroutine-safe. Now is by the
// clock of the API server, as are the times of pods and taints.
type Watch struct {
	most int

	mu sync.Mutex
	// known holds elements of recent, whose values are *course; those that were evicted
	// last come first.
	known  map[circle]*list.Element
	recent *list.List
}

// circle is what one loop is about.
type circle struct {
	owner types.UID
	kind  tracker.SourceKind
	// rule is the UID of a DeviceTaintRule, or of the ResourceSlicePatch that it is written
	// out for, or the name; empty for other sources.
	rule string
	key  string
}

// course is how it went so far.
type course struct {
	circle circle
	owner  string
	since  time.Time
	last   time.Time
	// began is when each of the last rounds did, the latest last; freeRounds at most.
	began        []time.Time
	rounds, pods int
	// waits is for how many rounds pods had to wait; zero while this is no loop.
	waits int
}

// NewWatch returns a watch that has seen nothing.
func NewWatch() *Watch {
	return &Watch{most: mostKnown, known: map[circle]*list.Element{}, recent: list.New()}
}

// Hold reports whether a pod that has to leave because of a taint came back too soon.
// Then it is held until the time that the loop says.
func (w *Watch) Hold(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (Loop, bool) {
	c, ok := circleOf(pod, taint)
	if !ok {
		return Loop{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	so := w.look(now, c)
	if so == nil || !so.next(pod) {
		return Loop{}, false
	}
	until := so.until(now)
	return so.loop(until), now.Before(until)
}

// Evicted takes in that a pod was evicted because of a taint. It returns true when that
// shows for the first time that pods come back.
func (w *Watch) Evicted(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (Loop, bool) {
	c, ok := circleOf(pod, taint)
	if !ok {
		return Loop{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	so := w.look(now, c)
	if so == nil {
		so = w.remember(now, c, pod.Origin.OwnerKind)
	}
	w.recent.MoveToFront(w.known[c])
	so.last = now
	so.pods++
	if !so.next(pod) {
		return Loop{}, false
	}
	return so.loop(now), so.begin(now)
}

// Loops returns how many loops there are.
func (w *Watch) Loops(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	loops := 0
	for element := w.recent.Front(); element != nil; element = element.Next() {
		if so, ok := element.Value.(*course); ok && so.waits > 0 && now.Sub(so.last) <= quiet {
			loops++
		}
	}
	return loops
}

// Clear forgets everything.
func (w *Watch) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.known)
	w.recent.Init()
}

// circleOf returns what a pod came back to; false when it was there before, or nobody
// would bring it back.
func circleOf(pod *tracker.Pod, taint *tracker.Taint) (circle, bool) {
	if pod.Origin == nil || pod.Origin.OwnerUID == "" || !pod.Bound.After(taint.Appeared()) {
		return circle{}, false
	}
	author := taint.Author()
	c := circle{owner: pod.Origin.OwnerUID, kind: author.Kind, key: taint.Key}
	if author.Kind == tracker.SourceRule || author.Kind == tracker.SourcePatch {
		c.rule = string(author.UID)
		if c.rule == "" {
			c.rule = author.Name
		}
	}
	return c, true
}

// look returns what is known, nil for nothing.
func (w *Watch) look(now time.Time, c circle) *course {
	element := w.known[c]
	if element == nil {
		return nil
	}
	so, ok := element.Value.(*course)
	if ok && now.Sub(so.last) <= quiet {
		so.notAfter(now)
		return so
	}
	delete(w.known, c)
	w.recent.Remove(element)
	return nil
}

func (w *Watch) remember(now time.Time, c circle, owner string) *course {
	for len(w.known) >= w.most {
		oldest := w.recent.Back()
		if so, ok := oldest.Value.(*course); ok {
			delete(w.known, so.circle)
		}
		w.recent.Remove(oldest)
	}
	so := &course{circle: c, owner: owner, since: now}
	w.known[c] = w.recent.PushFront(so)
	return so
}

// next reports whether a pod would begin the next round: it came after the last one
// had begun. Pods know only the second in which they came, which is cut off here too.
func (c *course) next(pod *tracker.Pod) bool {
	if len(c.began) == 0 {
		return true
	}
	return pod.Bound.After(c.began[len(c.began)-1].Truncate(time.Second))
}

// begin enters a round, and reports whether it is the first of a loop.
func (c *course) begin(now time.Time) bool {
	found := c.waits == 0 && c.looping(now)
	if found || c.waits > 0 {
		c.waits++
	}
	c.rounds++
	c.began = append(c.began, now)
	if len(c.began) > freeRounds {
		c.began = c.began[1:]
	}
	return found
}

// looping reports whether a round that begins now is one too many.
func (c *course) looping(now time.Time) bool {
	return c.waits > 0 || (len(c.began) == freeRounds && now.Sub(c.began[0]) <= freeWithin)
}

// notAfter follows a clock that was set back: otherwise pods would wait until it is
// again as late as it was.
func (c *course) notAfter(now time.Time) {
	ahead := c.last.Sub(now)
	if ahead <= 0 {
		return
	}
	c.last, c.since = now, c.since.Add(-ahead)
	for i := range c.began {
		c.began[i] = c.began[i].Add(-ahead)
	}
}

// until returns when the next round may begin.
func (c *course) until(now time.Time) time.Time {
	if !c.looping(now) {
		return now
	}
	wait := longestWait
	if c.waits < 10 {
		wait = min(longestWait, shortestWait<<c.waits)
	}
	return c.began[len(c.began)-1].Add(wait)
}

func (c *course) loop(until time.Time) Loop {
	return Loop{Until: until, Rounds: c.rounds, Pods: c.pods, Since: c.since, OwnerKind: c.owner}
}
