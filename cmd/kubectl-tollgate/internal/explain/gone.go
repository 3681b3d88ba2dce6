package explain

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
)

// summed is how long after an eviction, at most, the object that carries the taint is told
// of it: summaries are written at intervals.
const (
	summed = 15 * time.Second
	slack  = 3 * time.Second
)

// going tells of a pod on its way out.
func (w *World) going(p *Pod, pod *corev1.Pod, now time.Time) {
	how := "Terminating since " + strings.TrimSuffix(ago(deleted(pod), now), " ago")
	situation := w.situation(pod)
	p.Taints = w.onNode(now, pod, &situation)
	condition := disruption(pod)
	events := newest(w.Events, func(e *corev1.Event) bool { return e.InvolvedObject.UID == pod.UID && evicts(e) })
	taint := len(events) > 0 || condition != nil && strings.HasPrefix(condition.Reason, "DeletionBy") && strings.HasSuffix(condition.Reason, "TaintManager")
	switch {
	case taint:
		p.conclude(Terminating, how, w.evictedBecause(pod, events, now))
	case condition != nil:
		p.conclude(Terminating, how, Cause{CauseDeleted, "it was disrupted, and not by a taint that is known here" + because(condition.Reason, condition.Message)})
	default:
		p.conclude(Terminating, how, Cause{CauseDeleted, "somebody deleted it, and no taint did"})
	}
}

// deleted returns when the deletion of a pod was asked for.
func deleted(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// evictedBecause says because of what a pod was evicted that is still there: what would make
// it leave if it was not leaving, or what the carriers of taints are told of.
func (w *World) evictedBecause(pod *corev1.Pod, events []*corev1.Event, now time.Time) Cause {
	situation := w.situation(pod)
	situation.Pod.Terminating, situation.Pod.Finished = false, false
	decision := w.Rules.Decide(now, situation)
	if decision.Verdict == evictor.EvictAt && !decision.At.After(now) {
		return Cause{causeOf(&decision.Because[0]), "it was evicted: " + w.why(pod, &decision.Because[0], now)}
	}
	if len(events) > 0 {
		return w.evicted(events[0], pod.Spec.NodeName)
	}
	return Cause{CauseNodeTaint, "it was evicted because of a taint that is gone meanwhile"}
}

// gone tells of a pod that is not there, from events.
func (w *World) gone(p *Pod, now time.Time) {
	about := newest(w.Events, func(e *corev1.Event) bool { return ofPod(e, p.Namespace, p.Name) })
	if len(about) == 0 {
		w.notCreated(p, now)
		return
	}
	uid := about[0].InvolvedObject.UID
	about = slices.DeleteFunc(about, func(e *corev1.Event) bool { return e.InvolvedObject.UID != uid })
	p.UID, p.Events, p.Node = uid, told(about), nodeOf(about)
	if at := slices.IndexFunc(about, evicts); at >= 0 {
		p.conclude(Gone, "Gone since about "+ago(when(about[at]), now), w.evicted(about[at], p.Node))
		return
	}
	p.conclude(Gone, "Gone", Cause{CauseDeleted, "no event says that a taint made it leave; the last is " + ago(when(about[0]), now) + ": " + about[0].Reason + ": " + about[0].Message})
}

var assigned = regexp.MustCompile(`^Successfully assigned \S+ to (\S+)$`)

// nodeOf returns the node that the scheduler said to have put a pod on; empty if it is not
// known.
func nodeOf(events []*corev1.Event) string {
	for _, e := range events {
		if match := assigned.FindStringSubmatch(e.Message); e.Reason == reasonScheduled && match != nil {
			return match[1]
		}
	}
	return ""
}

// evicted says because of what a pod was evicted of which an event tells.
func (w *World) evicted(event *corev1.Event, node string) Cause {
	device := event.Reason == reasonDeviceEviction
	text, about := event.Annotations[v1alpha1.AnnotationEvictedBecause], ""
	if text == "" {
		text, about = w.guessed(event, node)
	}
	text = "it was evicted because of " + text + by(event.Message) + about
	if device {
		return Cause{CauseDeviceTaint, text}
	}
	return Cause{CauseNodeTaint, text}
}

// guessed says because of what a pod was evicted by somebody who does not name it, as
// Kubernetes' own controllers, and what is to be known about that.
func (w *World) guessed(event *corev1.Event, node string) (text, about string) {
	device := event.Reason == reasonDeviceEviction
	carriers := w.carriers(event, node)
	switch standing := w.evictingTaints(node); {
	case len(carriers) > 0 && device:
		// Which devices it had is not known any more.
		return "a taint of a device", aboutThen(carriers)
	case len(carriers) > 0 && node == "":
		return "a taint of its node, which is not known", aboutThen(carriers)
	case len(carriers) == 1:
		return carriers[0], ""
	case len(carriers) > 1:
		return "one of " + strings.Join(carriers, ", "), ""
	case device:
		return "a taint of a device, which no event names", ""
	case node == "":
		return "a taint of its node, which no event names", ""
	case len(standing) > 0:
		return "a taint of node " + node + ", which has " + strings.Join(standing, ", "), ""
	default:
		return "a taint of node " + node + ", which no event names and which is gone", ""
	}
}

// aboutThen says what made pods leave at the time, of which one may not be that pod.
func aboutThen(carriers []string) string {
	return "; about then pods left because of " + joined(carriers)
}

// carriers returns the taints, with the objects that carry them, because of which pods were
// evicted at about the time of an event: these objects are told of it in sum. A node other
// than that of the pod is none; an empty name is any.
func (w *World) carriers(event *corev1.Event, node string) []string {
	var found []string
	for _, e := range newest(w.Events, evicts) {
		because := e.Annotations[v1alpha1.AnnotationEvictedBecause]
		since := when(e).Sub(when(event))
		if e.Reason != event.Reason || because == "" || e.InvolvedObject.Kind == "Pod" || since < -slack || since > summed {
			continue
		}
		if e.InvolvedObject.Kind != "Node" || node == "" || e.InvolvedObject.Name == node {
			found = append(found, because)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// by says what an event adds about how a pod was evicted.
func by(message string) string {
	if _, policy, found := strings.Cut(message, ", as "); found {
		return " (as " + policy + ")"
	}
	if _, budget, found := strings.Cut(message, ": its PodDisruptionBudget"); found {
		return " (its PodDisruptionBudget" + budget + ")"
	}
	return ""
}

// evictingTaints returns the NoExecute taints that a node has now.
func (w *World) evictingTaints(name string) []string {
	var words []string
	if node := w.node(name); node != nil {
		for i := range node.Spec.Taints {
			if t := &node.Spec.Taints[i]; t.Effect == corev1.TaintEffectNoExecute {
				words = append(words, taintWords(t))
			}
		}
	}
	return words
}

// generated is what controllers add to their names for what they make: a random word or a
// number, and an indexed Job both.
var generated = regexp.MustCompile(`^-(\d+-)?[^-]+$`)

// madeBy reports whether a name is one that a controller gives to what it makes.
func madeBy(name, controller string) bool {
	rest, found := strings.CutPrefix(name, controller)
	return found && generated.MatchString(rest)
}

// notCreated tells of a pod of which there is no event: perhaps what should create it may
// not.
func (w *World) notCreated(p *Pod, now time.Time) {
	refused := newest(w.Events, func(e *corev1.Event) bool {
		owner := e.InvolvedObject
		return e.Reason == reasonFailedCreate && owner.Namespace == p.Namespace &&
			(owner.Name == p.Name || madeBy(p.Name, owner.Name) || madeBy(owner.Name, p.Name))
	})
	if len(refused) == 0 {
		p.conclude(NotFound, "Not found", Cause{CauseUnknown, "namespace " + p.Namespace + " has no pod " + p.Name + ", and no event tells of one (events are kept for an hour)"})
		return
	}
	e := refused[0]
	p.Events = told(refused)
	p.conclude(NotCreated, "Not created", Cause{CauseRefused, e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + " could not create it (" + ago(when(e), now) + "): " + strings.TrimSuffix(e.Message, ".")})
}
