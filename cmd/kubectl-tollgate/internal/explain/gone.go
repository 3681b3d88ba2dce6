package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/evictor/decide"
)

// terminating explains a pod that is being deleted.
func (w *World) terminating(p *Pod, pod *corev1.Pod) {
	deleted := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		deleted = deleted.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	how := "Terminating since " + strings.TrimSuffix(ago(deleted, w.Now), " ago")
	situation := w.situation(pod)
	p.Taints = w.onNode(pod, &situation)
	condition := situation.Pod.Disruption
	if condition == nil || condition.Status != corev1.ConditionTrue {
		condition = &corev1.PodCondition{}
	}
	events := w.newest(func(e *corev1.Event) bool { return e.InvolvedObject.UID == pod.UID && evicts(e) })
	switch {
	case len(events) > 0 || strings.HasPrefix(condition.Reason, "DeletionBy") && strings.HasSuffix(condition.Reason, "TaintManager"):
		p.conclude(Terminating, how, w.evictedBecause(pod, events))
	case condition.Type != "":
		p.conclude(Terminating, how, Cause{CauseDeleted, "it was disrupted, and not by a taint that is known here" + because(condition.Reason, condition.Message)})
	default:
		p.conclude(Terminating, how, Cause{CauseDeleted, "somebody deleted it, and no taint did"})
	}
}

// evictedBecause returns the cause of the eviction of a terminating pod: the taint that would
// evict it if it was running, else the one that events name.
func (w *World) evictedBecause(pod *corev1.Pod, events []*corev1.Event) Cause {
	situation := w.situation(pod)
	situation.Pod.Terminating, situation.Pod.Finished = false, false
	decision := w.Rules.Decide(w.Now, situation)
	if decision.Verdict == decide.EvictAt && !decision.At.After(w.Now) {
		return Cause{causeOf(&decision.Because[0]), "it was evicted: " + w.why(pod, &decision.Because[0])}
	}
	if len(events) > 0 {
		return w.evicted(events[0], pod.Spec.NodeName)
	}
	return Cause{CauseNodeTaint, "it was evicted because of a taint that is gone meanwhile"}
}

var assigned = regexp.MustCompile(`^Successfully assigned \S+ to (\S+)$`)

// gone explains a pod that does not exist, from events.
func (w *World) gone(p *Pod) {
	about := w.newest(func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Namespace == p.Namespace && e.InvolvedObject.Name == p.Name
	})
	if len(about) == 0 {
		w.notCreated(p)
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
		p.conclude(Gone, "Gone since about "+ago(evictions.EventTime(about[at]), w.Now), w.evicted(about[at], p.Node))
		return
	}
	p.conclude(Gone, "Gone", Cause{CauseDeleted, "no event says that a taint made it leave; the last is " + ago(evictions.EventTime(about[0]), w.Now) + ": " + about[0].Reason + ": " + about[0].Message})
}

// evicted returns the cause of an eviction that an event reports. Tollgate names the taint in the
// event; for Kubernetes' own controllers it is guessed.
func (w *World) evicted(event *corev1.Event, node string) Cause {
	text, about := event.Annotations[v1alpha1.AnnotationEvictedBecause], ""
	if text == "" {
		text, about = w.guessed(event, node)
	}
	by := ""
	if _, policy, found := strings.Cut(event.Message, ", as "); found {
		by = " (as " + policy + ")"
	} else if _, budget, found := strings.Cut(event.Message, ": its PodDisruptionBudget"); found {
		by = " (its PodDisruptionBudget" + budget + ")"
	}
	cause := Cause{CauseNodeTaint, "it was evicted because of " + text + by + about}
	if event.Reason == reasonDeviceEviction {
		cause.Kind = CauseDeviceTaint
	}
	return cause
}

// guessed returns the likely taint of an eviction, and what else is known about it.
func (w *World) guessed(event *corev1.Event, node string) (text, about string) {
	device := event.Reason == reasonDeviceEviction
	carriers := w.carriers(event, node)
	about = "; about then pods left because of " + cli.And(carriers)
	var current []string
	if of := named(w.Nodes, node); of != nil {
		for _, t := range of.Spec.Taints {
			if t.Effect == corev1.TaintEffectNoExecute {
				current = append(current, t.ToString())
			}
		}
	}
	switch {
	case len(carriers) > 0 && device: // Its devices are not known any more.
		return "a taint of a device", about
	case len(carriers) > 0 && node == "":
		return "a taint of its node, which is not known", about
	case len(carriers) == 1:
		return carriers[0], ""
	case len(carriers) > 1:
		return "one of " + strings.Join(carriers, ", "), ""
	case device:
		return "a taint of a device, which no event names", ""
	case node == "":
		return "a taint of its node, which no event names", ""
	case len(current) > 0:
		return "a taint of node " + node + ", which has " + strings.Join(current, ", "), ""
	default:
		return "a taint of node " + node + ", which no event names and which is gone", ""
	}
}

// carriers returns the taints, with their objects, that evicted pods at about the time of an
// event, from the summaries on these objects, which are written at intervals. A node other than
// that of the pod is left out; an empty name is any.
func (w *World) carriers(event *corev1.Event, node string) []string {
	const interval, slack = 15 * time.Second, 3 * time.Second
	var found []string
	for _, e := range w.newest(evicts) {
		because := e.Annotations[v1alpha1.AnnotationEvictedBecause]
		since := evictions.EventTime(e).Sub(evictions.EventTime(event))
		if e.Reason != event.Reason || because == "" || e.InvolvedObject.Kind == "Pod" || since < -slack || since > interval {
			continue
		}
		if e.InvolvedObject.Kind != "Node" || node == "" || e.InvolvedObject.Name == node {
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

// notCreated explains a pod without events: its controller may have failed to create it.
func (w *World) notCreated(p *Pod) {
	refused := w.newest(func(e *corev1.Event) bool {
		owner := e.InvolvedObject
		return e.Reason == reasonFailedCreate && owner.Namespace == p.Namespace &&
			(owner.Name == p.Name || madeBy(p.Name, owner.Name) || madeBy(owner.Name, p.Name))
	})
	if len(refused) == 0 {
		p.conclude(NotFound, "Not found", Cause{CauseUnknown, "namespace " + p.Namespace + " has no pod " + p.Name + ", and no event tells of one (events are kept for an hour)"})
		return
	}
	e := refused[0]
	p.Events = shown(refused)
	p.conclude(NotCreated, "Not created", Cause{CauseRefused, e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + " could not create it (" + ago(evictions.EventTime(e), w.Now) + "): " + strings.TrimSuffix(e.Message, ".")})
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
func (w *World) newest(matches func(*corev1.Event) bool) []*corev1.Event {
	list := slices.DeleteFunc(slices.Clone(w.Events), func(e *corev1.Event) bool { return !matches(e) })
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
