package explain

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
)

// Event is an event as JSON has it.
type Event struct {
	At      *metav1.Time `json:"at,omitempty"`
	About   string       `json:"about"`
	Reason  string       `json:"reason"`
	Message string       `json:"message"`
}

// The reasons of events about evictions because of taints. Tollgate writes them under the names
// of the controllers of Kubernetes.
const (
	reasonNodeEviction   = "TaintManagerEviction"
	reasonDeviceEviction = "DeviceTaintManagerEviction"
	reasonScheduled      = "Scheduled"
	reasonFailedCreate   = "FailedCreate"
)

// newest returns the events that match a filter, the newest first.
func (w *World) newest(matches func(*corev1.Event) bool) []*corev1.Event {
	var list []*corev1.Event
	for i := range w.Events {
		if matches(&w.Events[i]) {
			list = append(list, &w.Events[i])
		}
	}
	slices.SortStableFunc(list, func(a, b *corev1.Event) int {
		return cmp.Or(evictions.EventTime(b).Compare(evictions.EventTime(a)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// shown returns the first events as JSON has them.
func shown(list []*corev1.Event) []Event {
	const most = 8
	var all []Event
	for _, e := range list[:min(len(list), most)] {
		all = append(all, Event{At: new(metav1.NewTime(evictions.EventTime(e))), About: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message})
	}
	return all
}

// evicts reports whether an event says that its object is evicted because of taints.
func evicts(e *corev1.Event) bool {
	return (e.Reason == reasonNodeEviction || e.Reason == reasonDeviceEviction) && !strings.HasPrefix(e.Message, "Cancelling")
}
