package evictions

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// unseen are the holds that only Tollgate knows; the others follow from objects of the cluster.
var unseen = []evictor.HoldReason{evictor.HoldLooping, evictor.HoldTwinMissing, evictor.HoldNamespaceUnknown}

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
	reason            evictor.HoldReason
}

// notice is the latest event about a hold.
type notice struct {
	evictor.HeldNotice

	at time.Time
}

type refusal struct {
	why string
	at  time.Time
}

// kinds are the kinds of the objects with taints.
var kinds = map[tracker.SourceKind]string{
	tracker.SourceNode: "Node", tracker.SourceRule: "DeviceTaintRule", tracker.SourceSlice: "ResourceSlice",
	tracker.SourcePatch: "ResourceSlicePatch",
}

// Add adds an event, in any order. Events with other reasons than evictor.EventReasonsHeld and
// EventReasonsHeldUp are ignored.
func (s *Events) Add(event *corev1.Event) {
	if s.refused == nil {
		s.notices, s.refused = map[holdKey]notice{}, map[types.UID]refusal{}
	}
	at, object := EventTime(event), &event.InvolvedObject
	if slices.Contains(evictor.EventReasonsHeldUp(), event.Reason) {
		why := event.Message
		if _, after, found := strings.Cut(why, "again and again: "); found {
			why = after
		}
		if !s.refused[object.UID].at.After(at) {
			s.refused[object.UID] = refusal{why: why, at: at}
		}
		return
	}
	read, ok := evictor.ReadHeldNotice(event.Reason, event.Message)
	if !ok {
		return
	}
	key := holdKey{object.Kind, object.Name, read.Taint, read.Reason}
	if before, found := s.notices[key]; !found || at.After(before.at) || (at.Equal(before.at) && !read.Over) {
		s.notices[key] = notice{read, at}
	}
}

// hold returns the current hold for a taint of an object, if any.
func (s *Events) hold(source tracker.Source, taint string) Hold {
	for _, reason := range unseen {
		n, found := s.notices[holdKey{kinds[source.Kind], source.Name, taint, reason}]
		if found && !n.Over {
			by := kinds[source.Kind] + "/" + source.Name
			return Hold{Reason: reason, By: by, Why: reason.Explain(n.Policy), Since: n.at, Word: "event of " + by}
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
