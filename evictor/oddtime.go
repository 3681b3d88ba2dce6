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

// oddAfter is by how much the time of a taint may differ from the moment it
// appeared.
const oddAfter = 5 * time.Minute

// The directions in which a time can be odd. They are metric labels.
const (
	directionFuture = "future"
	directionPast   = "past"
)

// oddTime reports whether the time of a taint is hardly meant, and in which
// direction. The API accepts any time: one in the future suspends an eviction
// (H01), one in the past uses up tolerations that pods still count on (H02). A
// taint that stood there when the node was first seen may well be old.
func oddTime(taint tracker.Taint) (direction string, odd bool) {
	switch ahead := taint.TimeAdded.Sub(taint.Seen); {
	case ahead > oddAfter:
		return directionFuture, true
	case -ahead > oddAfter && taint.Witnessed:
		return directionPast, true
	}
	return "", false
}

// oddTimes are the odd times that were reported, each once.
type oddTimes struct {
	mu   sync.Mutex
	told map[tracker.Source][]tracker.Taint
}

// checkTimes reports odd times among the NoExecute taints of an object that is known as uid.
func (e *Evictor) checkTimes(source tracker.Source, uid types.UID, taints []tracker.Taint) {
	for _, taint := range e.odd.news(source.Named(), taints) {
		direction, _ := oddTime(taint)
		e.metrics.oddTimes.WithLabelValues(direction).Inc()
		about, known := source, uid
		if taint.Patch != (tracker.PatchRef{}) {
			about, known = taint.Author(), taint.Patch.UID
		}
		e.announce.onCarrier(about, known, corev1.EventTypeWarning, oddTimeReason,
			"Taint %s appeared at %s with a time in the %s: %s", taint.String(),
			taint.Seen.UTC().Format(time.RFC3339), direction, taint.TimeAdded.UTC().Format(time.RFC3339))
	}
}

// news returns the odd taints that were not reported yet.
func (o *oddTimes) news(object tracker.Source, taints []tracker.Taint) []tracker.Taint {
	var all, fresh []tracker.Taint
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, taint := range taints {
		if _, odd := oddTime(taint); !odd {
			continue
		}
		all = append(all, taint)
		told := slices.ContainsFunc(o.told[object], func(t tracker.Taint) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect && t.TimeAdded.Equal(taint.TimeAdded)
		})
		if !told {
			fresh = append(fresh, taint)
		}
	}
	if len(all) > 0 {
		o.told[object] = all
	} else {
		delete(o.told, object)
	}
	return fresh
}

// objects returns those of which something was reported.
func (o *oddTimes) objects() []tracker.Source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.told))
}
