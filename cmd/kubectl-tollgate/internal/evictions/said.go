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

// Said has the holds that events report. The zero Said has none. It is not safe for concurrent
// use.
type Said struct {
	// notices are the latest events on each hold, by object with the taint.
	notices map[carrier][]notice
	refused map[types.UID]refusal
}

type carrier struct {
	kind tracker.SourceKind
	name string
}

type notice struct {
	evictor.HeldNotice

	at time.Time
}

// refusal is a refused eviction of a pod.
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
func (s *Said) Add(event *corev1.Event) {
	at := latest(event)
	if slices.Contains(evictor.EventReasonsHeldUp(), event.Reason) {
		s.refuse(event.InvolvedObject.UID, event.Message, at)
		return
	}
	read, ok := evictor.ReadHeldNotice(event.Reason, event.Message)
	if !ok {
		return
	}
	for kind, name := range kinds {
		if name == event.InvolvedObject.Kind {
			s.tell(carrier{kind, event.InvolvedObject.Name}, notice{read, at})
		}
	}
}

func (s *Said) refuse(pod types.UID, message string, at time.Time) {
	if before, ok := s.refused[pod]; ok && before.at.After(at) {
		return
	}
	if s.refused == nil {
		s.refused = map[types.UID]refusal{}
	}
	if _, why, found := strings.Cut(message, "again and again: "); found {
		message = why
	}
	s.refused[pod] = refusal{why: message, at: at}
}

func (s *Said) tell(of carrier, said notice) {
	if s.notices == nil {
		s.notices = map[carrier][]notice{}
	}
	list := s.notices[of]
	at := slices.IndexFunc(list, func(n notice) bool { return n.Taint == said.Taint && n.Reason == said.Reason })
	switch {
	case at < 0:
		s.notices[of] = append(list, said)
	case said.at.After(list[at].at) || (said.at.Equal(list[at].at) && !said.Over):
		list[at] = said
	}
}

// of returns the current hold for a taint of an object.
func (s *Said) of(source tracker.Source, taint string) (Hold, bool) {
	for _, n := range s.notices[carrier{source.Kind, source.Name}] {
		if n.Over || n.Taint != taint || !slices.Contains(unseen, n.Reason) {
			continue
		}
		ref := kinds[source.Kind] + "/" + source.Name
		return Hold{Reason: n.Reason, By: ref, Why: n.Reason.Explain(n.Policy), Since: n.at, Word: "event of " + ref}, true
	}
	return Hold{}, false
}

// latest returns the last time of an event.
func latest(event *corev1.Event) time.Time {
	at := event.LastTimestamp.Time
	for _, other := range []time.Time{event.EventTime.Time, event.FirstTimestamp.Time} {
		if other.After(at) {
			at = other
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(at) {
		at = event.Series.LastObservedTime.Time
	}
	return at
}
