package evictor

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// oddAfter is the difference to the moment at which a taint appeared from which on its time is
// odd.
const oddAfter = 5 * time.Minute

// oddTimeReason is the reason of events about taints with an odd time.
const oddTimeReason = "TaintTimeOdd"

// The directions of an odd time, as metric labels.
const (
	directionFuture = "future"
	directionPast   = "past"
)

// oddTime returns the direction in which the time of a taint is probably a mistake, empty for none. The
// API accepts any time: one in the future postpones evictions (H01), and one in the past shortens
// tolerations (H02). A taint that existed when the node was first seen may be old.
func oddTime(taint tracker.Taint) string {
	switch ahead := taint.TimeAdded.Sub(taint.Seen); {
	case ahead > oddAfter:
		return directionFuture
	case -ahead > oddAfter && taint.Witnessed:
		return directionPast
	}
	return ""
}

// oddTimes are the reported odd times. Each is reported once.
type oddTimes struct {
	mu       sync.Mutex
	reported map[tracker.Source][]tracker.Taint
}

// checkTimes reports the odd times among the NoExecute taints of an object, which has its UID, that it
// has not reported yet.
func (e *Evictor) checkTimes(source tracker.Source, taints []tracker.Taint) {
	object := source.Named()
	e.odd.mu.Lock()
	before := e.odd.reported[object]
	delete(e.odd.reported, object)
	for _, taint := range taints {
		if oddTime(taint) != "" {
			e.odd.reported[object] = append(e.odd.reported[object], taint)
		}
	}
	odd := e.odd.reported[object]
	e.odd.mu.Unlock()
	for _, taint := range odd {
		if slices.ContainsFunc(before, func(t tracker.Taint) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect && t.TimeAdded.Equal(taint.TimeAdded)
		}) {
			continue
		}
		direction := oddTime(taint)
		e.metrics.oddTimes.WithLabelValues(direction).Inc()
		about := source
		if taint.Patch != (tracker.PatchRef{}) {
			about = taint.Author()
		}
		e.announce.recorder(about.Kind).Eventf(reference(about, about.UID), corev1.EventTypeWarning, oddTimeReason,
			"Taint %s appeared at %s with a time in the %s: %s", taint.String(),
			taint.Seen.UTC().Format(time.RFC3339), direction, taint.TimeAdded.UTC().Format(time.RFC3339))
	}
}

// objects returns the objects with reported taints.
func (o *oddTimes) objects() []tracker.Source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.reported))
}
