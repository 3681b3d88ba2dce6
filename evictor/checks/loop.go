package checks

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

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
	// mostKnown bounds how many loops are remembered.
	mostKnown = 10_000
)

// Loops finds pods that come back to be evicted again, and slows them down.
//
// A controller replaces a pod that was evicted. If the new pod tolerates the taint for a
// while, or was bound to the node by name, it lands on the tainted node, is evicted and
// replaced, and so on (J12). Kubernetes does that as fast as it can.
//
// A round begins with the eviction of a pod that was created after the previous round
// began; pods that existed before the taint are in no round. So the eviction of a workload with 50
// replicas is one round and not 50. From the fourth round within ten minutes on, the next
// round waits: 10 seconds after the previous one, then 20, up to 5 minutes. After half an
// hour without an eviction the history is dropped.
//
// A round belongs to one controller and one taint: of a DeviceTaintRule, or of a key on
// any node or in any slice, because pods go from one tainted node to the next. Pods
// without a controller do not come back.
//
// Create it with NewLoops. It is safe for concurrent use. Now is by the clock of the API
// server, as are the times of pods and taints.
type Loops struct {
	mu sync.Mutex
	// known has a *loopHistory for each loopKey. The least recently used is dropped first.
	known *lru.Cache
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

// loopHistory is the history of one loop.
type loopHistory struct {
	// owner is the kind of the controller.
	owner string
	since time.Time
	last  time.Time
	// began is when each of the last rounds did, the latest last; freeRounds at most.
	began []time.Time
	// rounds is how often pods came back, and pods how many were evicted.
	rounds, pods int
	// waits is for how many rounds pods had to wait; zero while this is no loop.
	waits int
}

// NewLoops returns an empty history.
func NewLoops() *Loops { return &Loops{known: lru.New(mostKnown)} }

// Hold reports whether a pod that has to leave because of a taint came back too soon, and until when it is
// held then.
func (w *Loops) Hold(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (until time.Time, holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	history := w.history(now, pod, taint, false)
	if history == nil || !history.next(pod) {
		return time.Time{}, false
	}
	until = history.until(now)
	return until, now.Before(until)
}

// Evicted records that a pod was evicted because of a taint. When that shows for the first time that pods
// come back, it returns true and the loop as events have it, without a full stop.
func (w *Loops) Evicted(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (loop string, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	history := w.history(now, pod, taint, true)
	if history == nil {
		return "", false
	}
	history.last = now
	history.pods++
	if !history.next(pod) {
		return "", false
	}
	loop = history.String()
	return loop, history.begin(now)
}

// loopKeyOf returns the loop that a pod may be part of; false for a pod that is older than
// the taint or has no controller to replace it.
func loopKeyOf(pod *tracker.Pod, taint *tracker.Taint) (loopKey, bool) {
	if pod.Origin == nil || pod.Origin.OwnerUID == "" || !pod.Bound.After(taint.Appeared()) {
		return loopKey{}, false
	}
	author := taint.Author()
	key := loopKey{owner: pod.Origin.OwnerUID, kind: author.Kind, key: taint.Key}
	if author.Kind == tracker.SourceRule || author.Kind == tracker.SourcePatch {
		key.rule = cmp.Or(string(author.UID), author.Name)
	}
	return key, true
}

// history returns what is known at now of the loop that a pod may be part of, nil for nothing. With
// begins true, a history begins where nothing is known.
func (w *Loops) history(now time.Time, pod *tracker.Pod, taint *tracker.Taint, begins bool) *loopHistory {
	key, ok := loopKeyOf(pod, taint)
	if !ok {
		return nil
	}
	known, _ := w.known.Get(key)
	history, _ := known.(*loopHistory)
	switch {
	case history != nil && now.Sub(history.last) <= quiet:
		history.notAfter(now)
		return history
	case !begins:
		return nil
	}
	history = &loopHistory{owner: pod.Origin.OwnerKind, since: now}
	w.known.Add(key, history)
	return history
}

// next reports whether a pod would begin the next round: it came after the last one
// had begun. Pods know only the second in which they came, which is cut off here too.
func (h *loopHistory) next(pod *tracker.Pod) bool {
	if len(h.began) == 0 {
		return true
	}
	return pod.Bound.After(h.began[len(h.began)-1].Truncate(time.Second))
}

// begin records a round, and reports whether it is the first of a loop.
func (h *loopHistory) begin(now time.Time) bool {
	found := h.waits == 0 && h.looping(now)
	if found || h.waits > 0 {
		h.waits++
	}
	h.rounds++
	h.began = append(h.began, now)
	if len(h.began) > freeRounds {
		h.began = h.began[1:]
	}
	return found
}

// looping reports whether a round that begins now is one too many.
func (h *loopHistory) looping(now time.Time) bool {
	return h.waits > 0 || (len(h.began) == freeRounds && now.Sub(h.began[0]) <= freeWithin)
}

// notAfter moves the history back with a clock that was set back. Otherwise pods would wait until the
// clock is as late as before.
func (h *loopHistory) notAfter(now time.Time) {
	ahead := h.last.Sub(now)
	if ahead <= 0 {
		return
	}
	h.last, h.since = now, h.since.Add(-ahead)
	for i := range h.began {
		h.began[i] = h.began[i].Add(-ahead)
	}
}

// until returns when the next round may begin.
func (h *loopHistory) until(now time.Time) time.Time {
	if !h.looping(now) {
		return now
	}
	wait := longestWait
	if h.waits < 10 {
		wait = min(longestWait, shortestWait<<h.waits)
	}
	return h.began[len(h.began)-1].Add(wait)
}

// String returns the loop as events have it.
func (h *loopHistory) String() string {
	pods := "1 pod"
	if h.pods != 1 {
		pods = fmt.Sprintf("%d pods", h.pods)
	}
	return fmt.Sprintf("pods of a %s come back to be evicted again: %s in %d rounds since %s",
		h.owner, pods, h.rounds, h.since.UTC().Format(time.RFC3339))
}
