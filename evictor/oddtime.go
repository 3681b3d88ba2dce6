package evictor

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// oddTime reports whether the time of a taint is probably a mistake, and its direction. The API
// accepts any time: one in the future postpones evictions (H01), and one in the past shortens
// tolerations (H02). A taint that existed when the node was first seen may be old.
func oddTime(taint tracker.Taint) (direction string, odd bool) {
	switch ahead := taint.TimeAdded.Sub(taint.Seen); {
	case ahead > oddAfter:
		return directionFuture, true
	case -ahead > oddAfter && taint.Witnessed:
		return directionPast, true
	}
	return "", false
}

// oddTimes are the reported odd times. Each is reported once.
type oddTimes struct {
	mu       sync.Mutex
	reported map[tracker.Source][]tracker.Taint
}

// checkTimes reports odd times among the NoExecute taints of an object.
func (e *Evictor) checkTimes(source tracker.Source, uid types.UID, taints []tracker.Taint) {
	for _, taint := range e.odd.unreported(source.Named(), taints) {
		direction, _ := oddTime(taint)
		e.metrics.oddTimes.WithLabelValues(direction).Inc()
		about, aboutUID := source, uid
		if taint.Patch != (tracker.PatchRef{}) {
			about, aboutUID = taint.Author(), taint.Patch.UID
		}
		e.announce.onCarrier(about, aboutUID, corev1.EventTypeWarning, oddTimeReason,
			"Taint %s appeared at %s with a time in the %s: %s", taint.String(),
			taint.Seen.UTC().Format(time.RFC3339), direction, taint.TimeAdded.UTC().Format(time.RFC3339))
	}
}

// unreported returns the odd taints that were not reported yet, and records them as reported.
func (o *oddTimes) unreported(object tracker.Source, taints []tracker.Taint) []tracker.Taint {
	var all, fresh []tracker.Taint
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, taint := range taints {
		if _, odd := oddTime(taint); !odd {
			continue
		}
		all = append(all, taint)
		known := slices.ContainsFunc(o.reported[object], func(t tracker.Taint) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect && t.TimeAdded.Equal(taint.TimeAdded)
		})
		if !known {
			fresh = append(fresh, taint)
		}
	}
	if len(all) > 0 {
		o.reported[object] = all
	} else {
		delete(o.reported, object)
	}
	return fresh
}

// objects returns the objects with reported taints.
func (o *oddTimes) objects() []tracker.Source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.reported))
}
