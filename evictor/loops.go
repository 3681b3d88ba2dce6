package evictor

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

// evictionLoop is what is known of pods that come back.
type evictionLoop struct {
	// Until is when the next round may begin.
	Until time.Time
	// Rounds is how often pods came back, and Pods how many were evicted, since Since.
	Rounds, Pods int
	Since        time.Time
	// OwnerKind is the kind of their controller.
	OwnerKind string
}

// String says it in a sentence without an end, as for an event.
func (l evictionLoop) String() string {
	return fmt.Sprintf("pods of a %s come back to be evicted again: %s in %d rounds since %s",
		l.OwnerKind, pods(l.Pods), l.Rounds, l.Since.UTC().Format(time.RFC3339))
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return strconv.Itoa(n) + " pods"
}

// loopWatch finds pods that come back to be evicted again, and slows them down.
//
// A controller replaces a pod that was evicted. If the new pod tolerates the taint for a
// while, or was bound to the node by name, it lands on the tainted node, is evicted and
// replaced, and so on (J12). Kubernetes does that as fast as it can.
//
// Rounds count. A round begins with the eviction of a pod that was created after the
// previous round began; pods that existed before the taint are in no round. So a workload
// of 50 replicas that is evicted is one round and not 50 evictions. From the fourth round
// within ten minutes on, the next round waits: 10 seconds after the previous one, then 20,
// up to 5 minutes. After half an hour without an eviction the history is dropped.
//
// A round belongs to one controller and one taint: of a DeviceTaintRule, or of a key on
// any node or in any slice, because pods go from one tainted node to the next. Pods
// without a controller do not come back.
//
// Create it with newLoopWatch. It is goroutine-safe. Now is by the clock of the API
// server, as are the times of pods and taints.
type loopWatch struct {
	most int

	mu sync.Mutex
	// known holds elements of recent, whose values are *loopHistory; those that were evicted
	// last come first.
	known  map[loopKey]*list.Element
	recent *list.List
}

// loopKey identifies a loop.
type loopKey struct {
	owner types.UID
	kind  tracker.SourceKind
	// rule is the UID of a DeviceTaintRule, or of the ResourceSlicePatch that it is written
	// out for, or the name; empty for other sources.
	rule string
	key  string
}

// loopHistory is what a loopWatch knows of one loop.
type loopHistory struct {
	key   loopKey
	owner string
	since time.Time
	last  time.Time
	// began is when each of the last rounds did, the latest last; freeRounds at most.
	began        []time.Time
	rounds, pods int
	// waits is for how many rounds pods had to wait; zero while this is no loop.
	waits int
}

// newLoopWatch returns a watch that has seen nothing.
func newLoopWatch() *loopWatch {
	return &loopWatch{most: mostKnown, known: map[loopKey]*list.Element{}, recent: list.New()}
}

// Hold reports whether a pod that has to leave because of a taint came back too soon.
// Then it is held until the time that the loop says.
func (w *loopWatch) Hold(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (evictionLoop, bool) {
	c, ok := loopKeyOf(pod, taint)
	if !ok {
		return evictionLoop{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	so := w.look(now, c)
	if so == nil || !so.next(pod) {
		return evictionLoop{}, false
	}
	until := so.until(now)
	return so.loop(until), now.Before(until)
}

// Evicted takes in that a pod was evicted because of a taint. It returns true when that
// shows for the first time that pods come back.
func (w *loopWatch) Evicted(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (evictionLoop, bool) {
	c, ok := loopKeyOf(pod, taint)
	if !ok {
		return evictionLoop{}, false
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
		return evictionLoop{}, false
	}
	return so.loop(now), so.begin(now)
}

// Loops returns how many loops there are.
func (w *loopWatch) Loops(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	loops := 0
	for element := w.recent.Front(); element != nil; element = element.Next() {
		if so, ok := element.Value.(*loopHistory); ok && so.waits > 0 && now.Sub(so.last) <= quiet {
			loops++
		}
	}
	return loops
}

// Clear forgets everything.
func (w *loopWatch) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.known)
	w.recent.Init()
}

// loopKeyOf returns the loop that a pod may be part of; false for a pod that is older than
// the taint or has no controller to replace it.
func loopKeyOf(pod *tracker.Pod, taint *tracker.Taint) (loopKey, bool) {
	if pod.Origin == nil || pod.Origin.OwnerUID == "" || !pod.Bound.After(taint.Appeared()) {
		return loopKey{}, false
	}
	author := taint.Author()
	c := loopKey{owner: pod.Origin.OwnerUID, kind: author.Kind, key: taint.Key}
	if author.Kind == tracker.SourceRule || author.Kind == tracker.SourcePatch {
		c.rule = string(author.UID)
		if c.rule == "" {
			c.rule = author.Name
		}
	}
	return c, true
}

// look returns what is known, nil for nothing.
func (w *loopWatch) look(now time.Time, c loopKey) *loopHistory {
	element := w.known[c]
	if element == nil {
		return nil
	}
	so, ok := element.Value.(*loopHistory)
	if ok && now.Sub(so.last) <= quiet {
		so.notAfter(now)
		return so
	}
	delete(w.known, c)
	w.recent.Remove(element)
	return nil
}

func (w *loopWatch) remember(now time.Time, c loopKey, owner string) *loopHistory {
	for len(w.known) >= w.most {
		oldest := w.recent.Back()
		if so, ok := oldest.Value.(*loopHistory); ok {
			delete(w.known, so.key)
		}
		w.recent.Remove(oldest)
	}
	so := &loopHistory{key: c, owner: owner, since: now}
	w.known[c] = w.recent.PushFront(so)
	return so
}

// next reports whether a pod would begin the next round: it came after the last one
// had begun. Pods know only the second in which they came, which is cut off here too.
func (c *loopHistory) next(pod *tracker.Pod) bool {
	if len(c.began) == 0 {
		return true
	}
	return pod.Bound.After(c.began[len(c.began)-1].Truncate(time.Second))
}

// begin enters a round, and reports whether it is the first of a loop.
func (c *loopHistory) begin(now time.Time) bool {
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
func (c *loopHistory) looping(now time.Time) bool {
	return c.waits > 0 || (len(c.began) == freeRounds && now.Sub(c.began[0]) <= freeWithin)
}

// notAfter follows a clock that was set back: otherwise pods would wait until it is
// again as late as it was.
func (c *loopHistory) notAfter(now time.Time) {
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
func (c *loopHistory) until(now time.Time) time.Time {
	if !c.looping(now) {
		return now
	}
	wait := longestWait
	if c.waits < 10 {
		wait = min(longestWait, shortestWait<<c.waits)
	}
	return c.began[len(c.began)-1].Add(wait)
}

func (c *loopHistory) loop(until time.Time) evictionLoop {
	return evictionLoop{Until: until, Rounds: c.rounds, Pods: c.pods, Since: c.since, OwnerKind: c.owner}
}
