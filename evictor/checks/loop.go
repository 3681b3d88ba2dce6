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
	// freeRounds is the number of rounds within freeWithin before pods have to wait.
	freeRounds = 3
	freeWithin = 10 * time.Minute
	// shortestWait is the first wait between two rounds. It doubles with each round, up to
	// longestWait.
	shortestWait = 10 * time.Second
	longestWait  = 5 * time.Minute
	// quiet is the time without an eviction after which a loop has ended.
	quiet = 30 * time.Minute
	// mostKnown is the maximum number of stored histories.
	mostKnown = 10_000
)

// Loops detects pods whose replacements are evicted again and again, and delays their evictions.
//
// A controller replaces an evicted pod. If the new pod tolerates the taint for a while, or was bound
// to the node by name, it runs on the tainted node, is evicted and replaced, and so on (J12).
// Kubernetes does that without a limit.
//
// A round begins with the eviction of a pod that was bound after the previous round began. Pods that
// were bound before the taint appeared are in no round. So the eviction of a workload with 50
// replicas is one round. From the fourth round within ten minutes on, the next round has to wait: 10
// seconds after the previous one, then 20, up to 5 minutes. After half an hour without an eviction
// the history is removed.
//
// A round belongs to one controller and one taint: that of a DeviceTaintRule, or a key on any node or
// in any ResourceSlice, because pods move from one tainted node to the next. Pods without a
// controller are not replaced.
//
// NewLoops creates it. It is goroutine-safe. now is by the clock of the API server, like the times of
// pods and taints.
type Loops struct {
	mu sync.Mutex
	// known has a *loopHistory for each loopKey. The least recently used one is evicted first.
	known *lru.Cache
}

// loopKey identifies a loop.
type loopKey struct {
	owner types.UID
	kind  tracker.SourceKind
	// rule is the UID of a DeviceTaintRule, or of the ResourceSlicePatch that it was written for,
	// or the name if the UID is not known; empty for other sources.
	rule string
	key  string
}

// loopHistory is the history of one loop.
type loopHistory struct {
	// owner is the kind of the controller.
	owner string
	since time.Time
	last  time.Time
	// began has the start times of the last freeRounds rounds, ascending.
	began []time.Time
	// rounds counts rounds, and pods evicted pods.
	rounds, pods int
	// waits is the number of rounds that had to wait; zero while this is no loop.
	waits int
}

// NewLoops returns an empty history.
func NewLoops() *Loops { return &Loops{known: lru.New(mostKnown)} }

// Hold reports whether a pod has to wait because of a loop, and until when.
func (w *Loops) Hold(now time.Time, pod *tracker.Pod, taint *tracker.Taint) (until time.Time, holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	history := w.history(now, pod, taint, false)
	if history == nil || !history.next(pod) || !history.looping(now) {
		return time.Time{}, false
	}
	// Five doublings exceed longestWait.
	until = history.began[len(history.began)-1].Add(min(longestWait, shortestWait<<min(history.waits, 5)))
	return until, now.Before(until)
}

// Evicted records the eviction of a pod because of a taint, and the round that it begins. If that is the
// first round of a loop, Evicted returns true and a description of the loop for events, without a full stop.
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
	if history.looping(now) {
		found = history.waits == 0
		history.waits++
	}
	history.rounds++
	history.began = append(history.began, now)
	if len(history.began) > freeRounds {
		history.began = history.began[1:]
	}
	return loop, found
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

// history returns the history of the loop that a pod may be part of, nil for none. If begins is true,
// it adds a new history where there is none.
func (w *Loops) history(now time.Time, pod *tracker.Pod, taint *tracker.Taint, begins bool) *loopHistory {
	key, ok := loopKeyOf(pod, taint)
	if !ok {
		return nil
	}
	known, _ := w.known.Get(key)
	history, _ := known.(*loopHistory)
	switch {
	case history != nil && now.Sub(history.last) <= quiet:
		// If the clock was set back, the history moves back: pods do not wait until the clock reaches the
		// earlier time.
		if ahead := history.last.Sub(now); ahead > 0 {
			history.last, history.since = now, history.since.Add(-ahead)
			for i := range history.began {
				history.began[i] = history.began[i].Add(-ahead)
			}
		}
		return history
	case !begins:
		return nil
	}
	history = &loopHistory{owner: pod.Origin.OwnerKind, since: now}
	w.known.Add(key, history)
	return history
}

// next reports whether a pod begins the next round: it was bound after the last round began. Bound
// times are truncated to seconds, so the time of the round is truncated too.
func (h *loopHistory) next(pod *tracker.Pod) bool {
	last := len(h.began) - 1
	return last < 0 || pod.Bound.After(h.began[last].Truncate(time.Second))
}

// looping reports whether a round that begins now has to wait.
func (h *loopHistory) looping(now time.Time) bool {
	return h.waits > 0 || (len(h.began) == freeRounds && now.Sub(h.began[0]) <= freeWithin)
}

// String describes the loop for events.
func (h *loopHistory) String() string {
	pods := "1 pod"
	if h.pods != 1 {
		pods = fmt.Sprintf("%d pods", h.pods)
	}
	return fmt.Sprintf("pods of a %s come back to be evicted again: %s in %d rounds since %s",
		h.owner, pods, h.rounds, h.since.UTC().Format(time.RFC3339))
}
