package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Event is what an event says.
type Event struct {
	At      *metav1.Time `json:"at,omitempty"`
	About   string       `json:"about"`
	Reason  string       `json:"reason"`
	Message string       `json:"message"`
}

// The reasons of events that say that a pod leaves because of taints: those of Kubernetes'
// own controllers, under whose names Tollgate writes too.
const (
	reasonNodeEviction   = "TaintManagerEviction"
	reasonDeviceEviction = "DeviceTaintManagerEviction"
	reasonScheduled      = "Scheduled"
	reasonFailedCreate   = "FailedCreate"
)

// mostEvents is how many events are shown.
const mostEvents = 8

// when returns when an event happened last.
func when(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// newest returns events that are wanted, the newest first.
func newest(events []corev1.Event, wanted func(*corev1.Event) bool) []*corev1.Event {
	var list []*corev1.Event
	for i := range events {
		if wanted(&events[i]) {
			list = append(list, &events[i])
		}
	}
	slices.SortStableFunc(list, func(a, b *corev1.Event) int {
		return cmp.Or(when(b).Compare(when(a)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// eventsOf returns the last events about an object, the newest first.
func eventsOf(events []corev1.Event, uid types.UID) []Event {
	return told(newest(events, func(e *corev1.Event) bool { return e.InvolvedObject.UID == uid }))
}

func told(list []*corev1.Event) []Event {
	var all []Event
	for _, e := range list[:min(len(list), mostEvents)] {
		all = append(all, Event{At: stamp(when(e)), About: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message})
	}
	return all
}

// evicts reports whether an event says that its object leaves because of taints.
func evicts(e *corev1.Event) bool {
	return (e.Reason == reasonNodeEviction || e.Reason == reasonDeviceEviction) && !strings.HasPrefix(e.Message, "Cancelling")
}

// ofPod reports whether an event is about a pod of that name.
func ofPod(e *corev1.Event, namespace, name string) bool {
	return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Namespace == namespace && e.InvolvedObject.Name == name
}
