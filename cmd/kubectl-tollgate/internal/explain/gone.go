package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/tracker"
)

// terminating explains a pod that is being deleted. The cause is the taint that would evict it if it
// was running, else the one that its events name.
func (w *World) terminating(p *Pod, pod *corev1.Pod, situation *tracker.Situation, events []*corev1.Event) {
	p.Taints = w.onNode(situation)
	condition := situation.Pod.Disruption
	disrupted := condition != nil && condition.Status == corev1.ConditionTrue
	at := slices.IndexFunc(events, evicts)
	byTaint := disrupted && strings.HasPrefix(condition.Reason, "DeletionBy") && strings.HasSuffix(condition.Reason, "TaintManager")
	situation.Pod.Terminating, situation.Pod.Finished = false, false
	decision := w.Rules.Decide(w.Now, *situation)
	due := decision.Due(w.Now)
	switch evicted := at >= 0 || byTaint; {
	case !evicted && !disrupted:
		p.addf(CauseDeleted, "somebody deleted it, and no taint did")
	case !evicted:
		p.addf(CauseDeleted, "it was disrupted, and not by a taint that is known here%s", because(condition.Reason, condition.Message))
	case len(due) > 0:
		w.addWhy(p, "it was evicted: ", situation, &due[0])
	case at >= 0:
		w.addEvicted(p, events[at])
	default:
		p.addf(CauseNodeTaint, "it was evicted because of a taint that is gone meanwhile")
	}
	deleted := pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	p.conclude(Terminating, "Terminating since "+strings.TrimSuffix(ago(deleted, w.Now), " ago"))
}

var assigned = regexp.MustCompile(`^Successfully assigned \S+ to (\S+)$`)

// gone explains a pod that does not exist, from events. For a pod without events, these are those of
// the controller that may have failed to create it.
func (w *World) gone(p *Pod) {
	about := w.newest(func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Namespace == p.Namespace && e.InvolvedObject.Name == p.Name
	})
	refused := w.newest(func(e *corev1.Event) bool {
		owner := e.InvolvedObject
		return e.Reason == reasonFailedCreate && owner.Namespace == p.Namespace &&
			(owner.Name == p.Name || madeBy(p.Name, owner.Name) || madeBy(owner.Name, p.Name))
	})
	switch {
	case len(about) > 0:
	case len(refused) > 0:
		p.Events = shown(refused)
		last := p.Events[0]
		p.addf(CauseRefused, "%s could not create it (%s): %s", last.About, ago(last.At.Time, w.Now), strings.TrimSuffix(last.Message, "."))
		p.conclude(NotCreated, "Not created")
		return
	default:
		p.addf(CauseUnknown, "namespace %s has no pod %s, and no event tells of one (events are kept for an hour)", p.Namespace, p.Name)
		p.conclude(NotFound, "Not found")
		return
	}
	p.UID = about[0].InvolvedObject.UID
	about = slices.DeleteFunc(about, func(e *corev1.Event) bool { return e.InvolvedObject.UID != p.UID })
	p.Events = shown(about)
	for _, e := range about {
		if match := assigned.FindStringSubmatch(e.Message); e.Reason == reasonScheduled && match != nil && p.Node == "" {
			p.Node = match[1]
		}
	}
	if at := slices.IndexFunc(about, evicts); at >= 0 {
		w.addEvicted(p, about[at])
		p.conclude(Gone, "Gone since about "+ago(evictions.EventTime(about[at]), w.Now))
		return
	}
	last := p.Events[0]
	p.addf(CauseDeleted, "no event says that a taint made it leave; the last is %s: %s: %s", ago(last.At.Time, w.Now), last.Reason, last.Message)
	p.conclude(Gone, "Gone")
}

// manner is the end of the message about an eviction that was not plain.
var manner = regexp.MustCompile(`(?s)(, as |: its PodDisruptionBudget).*`)

// addEvicted adds the cause of an eviction that an event reports. Tollgate names the taint in the
// event; for Kubernetes' own controllers it is guessed.
func (w *World) addEvicted(p *Pod, event *corev1.Event) {
	text, about := event.Annotations[v1alpha1.AnnotationEvictedBecause], ""
	if text == "" {
		text, about = w.guessed(event, p.Node)
	}
	kind := CauseNodeTaint
	if event.Reason == reasonDeviceEviction {
		kind = CauseDeviceTaint
	}
	p.addf(kind, "it was evicted because of %s%s%s", text, bracketed(strings.TrimLeft(manner.FindString(event.Message), ",: ")), about)
}

// guessed returns the likely taint of an eviction, and what else is known about it.
func (w *World) guessed(event *corev1.Event, node string) (text, about string) {
	carriers := w.carriers(event, node)
	var current []string
	if of := named(w.Nodes, node); of != nil {
		for _, t := range of.Spec.Taints {
			if t.Effect == corev1.TaintEffectNoExecute {
				current = append(current, t.ToString())
			}
		}
	}
	text = "a taint of node " + node
	switch {
	case event.Reason == reasonDeviceEviction: // Its devices are not known any more.
		text = "a taint of a device"
	case node == "" && len(carriers) > 0:
		text = "a taint of its node, which is not known"
	case node == "":
		text = "a taint of its node"
	case len(carriers) == 1:
		return carriers[0], ""
	case len(carriers) > 1:
		return "one of " + cli.Joined(carriers), ""
	case len(current) > 0:
		return text + ", which has " + cli.Joined(current), ""
	default:
		return text + ", which no event names and which is gone", ""
	}
	if len(carriers) == 0 {
		return text + ", which no event names", ""
	}
	return text, "; about then pods left because of " + cli.And(carriers)
}

// carriers returns the taints, with their objects, that evicted pods at about the time of an
// event, from the summaries on these objects, which are written at intervals. A node other than
// that of the pod is left out; an empty name is any.
func (w *World) carriers(event *corev1.Event, node string) (found []string) {
	const interval, slack = 15 * time.Second, 3 * time.Second
	for _, e := range w.Events {
		because := e.Annotations[v1alpha1.AnnotationEvictedBecause]
		since := evictions.EventTime(e).Sub(evictions.EventTime(event))
		summary := evicts(e) && e.Reason == event.Reason && because != "" && e.InvolvedObject.Kind != "Pod" && since >= -slack && since <= interval
		if summary && (e.InvolvedObject.Kind != "Node" || node == "" || e.InvolvedObject.Name == node) {
			found = append(found, because)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// generated matches what controllers append to their names for the pods that they create: a
// random word or a number, and an indexed Job both.
var generated = regexp.MustCompile(`^-(\d+-)?[^-]+$`)

// madeBy reports whether a controller may have generated a name.
func madeBy(name, controller string) bool {
	rest, found := strings.CutPrefix(name, controller)
	return found && generated.MatchString(rest)
}

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
func (w *World) newest(matches func(*corev1.Event) bool) (list []*corev1.Event) {
	for _, e := range w.Events {
		if matches(e) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Event) int {
		return cmp.Or(evictions.EventTime(b).Compare(evictions.EventTime(a)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return list
}

// shown returns the first events as JSON has them.
func shown(all []*corev1.Event) (list []Event) {
	const most = 8
	for _, e := range all[:min(len(all), most)] {
		list = append(list, Event{At: new(metav1.NewTime(evictions.EventTime(e))), About: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Reason: e.Reason, Message: e.Message})
	}
	return list
}

// evicts reports whether an event says that its object is evicted because of taints.
func evicts(e *corev1.Event) bool {
	return (e.Reason == reasonNodeEviction || e.Reason == reasonDeviceEviction) && !strings.HasPrefix(e.Message, "Cancelling")
}
