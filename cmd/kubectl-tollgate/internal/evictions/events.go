package evictions

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// unseen are the holds that only Tollgate knows; the others follow from objects of the cluster.
var unseen = []checks.Reason{checks.Looping, checks.TwinMissing, checks.NamespaceUnknown}

// Events has the holds that events report. The zero Events has none. It is not safe for
// concurrent use.
type Events struct {
	notices map[holdKey]notice
	// refused are the refused evictions, by pod.
	refused map[types.UID]refusal
}

// holdKey identifies a hold because of a taint of an object.
type holdKey struct {
	kind, name, taint string
	reason            checks.Reason
}

// notice is the latest event about a hold.
type notice struct {
	policy string
	// over is true if no pod is held any more.
	over bool
	at   time.Time
}

type refusal struct {
	why string
	at  time.Time
}

// Add adds an event, in any order. Events with other reasons than evictor.EventHeld, EventReleased and
// EventReasonsHeldUp are ignored.
func (s *Events) Add(event *corev1.Event) {
	if s.refused == nil {
		s.notices, s.refused = map[holdKey]notice{}, map[types.UID]refusal{}
	}
	at, object := EventTime(event), &event.InvolvedObject
	if slices.Contains(evictor.EventReasonsHeldUp(), event.Reason) {
		if !s.refused[object.UID].at.After(at) {
			s.refused[object.UID] = refusal{why: cmp.Or(event.Annotations[v1alpha1.AnnotationHeldUpBecause], event.Message), at: at}
		}
		return
	}
	if event.Reason != evictor.EventHeld && event.Reason != evictor.EventReleased {
		return
	}
	reason := checks.Reason(event.Annotations[v1alpha1.AnnotationHeldReason])
	key := holdKey{object.Kind, object.Name, event.Annotations[v1alpha1.AnnotationHeldTaint], reason}
	read := notice{policy: event.Annotations[v1alpha1.AnnotationHeldPolicy], over: event.Reason == evictor.EventReleased, at: at}
	if before, found := s.notices[key]; !found || at.After(before.at) || (at.Equal(before.at) && !read.over) {
		s.notices[key] = read
	}
}

// hold returns the current hold for a taint of an object, if any.
func (s *Events) hold(source tracker.Source, taint string) Hold {
	for _, reason := range unseen {
		n, found := s.notices[holdKey{source.Kind.Object(), source.Name, taint, reason}]
		if found && !n.over {
			by := source.Kind.Object() + "/" + source.Name
			return Hold{Reason: reason, By: by, Why: reason.Explain(n.policy), Since: n.at, Word: "event of " + by}
		}
	}
	return Hold{}
}

// EventTime returns the last time of an event.
func EventTime(event *corev1.Event) time.Time {
	at := event.LastTimestamp.Time
	for _, other := range []time.Time{event.EventTime.Time, event.FirstTimestamp.Time} {
		if other.After(at) {
			at = other
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(at) {
		at = event.Series.LastObservedTime.Time
	}
	if at.IsZero() {
		at = event.CreationTimestamp.Time
	}
	return at
}
