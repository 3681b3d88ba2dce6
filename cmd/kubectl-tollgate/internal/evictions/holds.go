package evictions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// holdStates are the states of pods with a hold, by its reason, if it is not Held.
var holdStates = map[checks.Reason]State{checks.Paused: Paused, checks.Protected: Protected, checks.Budget: Blocked}

// byTollgate returns the eviction of a pod by Tollgate for at least one reason. A protected
// reason comes first only if all are.
func (m *Moment) byTollgate(pod *tracker.Pod, because []decide.Reason) Eviction {
	subject := decide.SubjectOf(pod, m.Namespaces)
	evictions := make([]Eviction, 0, len(because)) // One for each reason.
	for i := range because {
		reason := &because[i]
		way, unknown := decide.Treat(m.Set, reason, &subject)
		e := Eviction{At: reason.At, By: ByTollgate, Way: way, Hold: m.hold(pod, reason, way, unknown), Because: slices.Concat(because[i:i+1], because[:i], because[i+1:])}
		if way.Policy != nil {
			e.Policy = way.Policy.Name
		}
		if e.State = cmp.Or(holdStates[e.Hold.Reason], Held); e.Hold.None() {
			e.State = m.stateAt(e.At)
		}
		evictions = append(evictions, e)
	}
	open := slices.DeleteFunc(slices.Clone(evictions), func(e Eviction) bool { return e.State == Protected })
	if len(open) == 0 {
		return evictions[0]
	}
	free := slices.IndexFunc(open, func(e Eviction) bool { return e.Hold.None() })
	if free == 0 || (free > 0 && !open[free].At.After(m.now)) {
		return open[free]
	}
	e := open[0]
	for _, other := range open {
		if other.Hold.None() {
			e.Hold.Until = earliest(e.Hold.Until, other.At)
			break
		}
		e.Hold.Until = earliest(e.Hold.Until, other.Hold.Until)
	}
	return e
}

// hold returns the hold of a pod for one taint. Pause and protection apply before the deadline
// too.
func (m *Moment) hold(pod *tracker.Pod, reason *decide.Reason, way eviction.Treatment, unknown error) Hold {
	// Labels that the command lacks may be known to Tollgate.
	if why, policy := checks.ByPolicy(way, unknown); why != "" && why != checks.NamespaceUnknown {
		by := "EvictionPolicy/" + policy
		return Hold{Reason: why, By: by, Why: why.Explain(policy), Word: "spec of " + by}
	}
	if reason.At.After(m.now) {
		return Hold{}
	}
	if m.disruption.Holds(&reason.Taint) {
		return Hold{Reason: checks.NodesDown, Why: checks.NodesDown.Explain(""), Word: "taints of all nodes"}
	}
	for _, policy := range way.Breakers {
		if since, ok := m.Tripped[policy.UID]; ok {
			return Hold{
				Reason: checks.BreakerTripped, By: policy.Ref(), Why: checks.BreakerTripped.Explain(policy.Name),
				Since: since, Word: "status of " + policy.Ref(),
			}
		}
	}
	// Events are about pods in general. A pod that just became due may be about to leave, and a
	// loop of other pods delays a pod only by a policy.
	const settleTime = 3 * time.Second
	if m.now.Sub(reason.At) >= settleTime {
		if hold := m.reported(reason); !hold.None() && (hold.Reason != checks.Looping || way.Policy != nil) {
			return hold
		}
	}
	if hold := m.budget(pod, reason, way.Policy); !hold.None() {
		return hold
	}
	if refused, ok := m.Events.refused[pod.UID]; ok && !refused.at.Before(reason.At) {
		return Hold{Reason: checks.Budget, By: "Pod/" + pod.String(), Why: refused.why, Since: reason.At, Word: "event of Pod/" + pod.String()}
	}
	return Hold{}
}

// budget returns the hold by disruption budgets, for pods that are evicted by the eviction API.
func (m *Moment) budget(pod *tracker.Pod, reason *decide.Reason, policy *eviction.Policy) Hold {
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict {
		return Hold{}
	}
	hold := Hold{Reason: checks.Budget, Since: reason.At}
	if policy.DeleteAfter != nil {
		hold.Until = reason.At.Add(*policy.DeleteAfter)
		if !hold.Until.After(m.now) {
			return Hold{}
		}
	}
	var guards []string
	allowed := int32(0)
	for _, budget := range m.Tracker.Budgets(pod.Namespace) {
		if budget.Guards(pod) {
			guards, allowed = append(guards, budget.Name), budget.Allowed
		}
	}
	hold.By = "PodDisruptionBudget/" + pod.Namespace + "/" + strings.Join(guards, ",")
	switch {
	case len(guards) > 1:
		hold.Why = fmt.Sprintf("%d PodDisruptionBudgets select the pod, and the Eviction API takes one at most", len(guards))
		hold.Word = "selectors of the budgets"
	case len(guards) == 1 && allowed <= 0:
		hold.Why = "it allows no disruption now; this is tried again when it does"
		hold.Word = "status of " + hold.By
	default:
		return Hold{}
	}
	if policy.DeleteAfter == nil {
		hold.Why += ". " + policy.Ref() + " has no deleteAfter: without the budget's leave the pod stays"
	} else {
		hold.Why += ". " + policy.Ref() + " has it deleted " + duration.HumanDuration(*policy.DeleteAfter) + " after it was due (deleteAfter)"
	}
	return hold
}

// reported returns the hold that only Tollgate knows, of any pod with a taint: from events on the
// object with the taint or its patch, or from the status of a rule.
func (m *Moment) reported(reason *decide.Reason) Hold {
	for _, source := range []tracker.Source{reason.Taint.Author(), reason.Taint.Source} {
		if hold := m.Events.hold(source, reason.Taint.String()); !hold.None() {
			return hold
		}
	}
	if reason.Taint.Source.Kind != tracker.SourceRule {
		return Hold{}
	}
	rule, _ := m.Tracker.Rule(reason.Taint.Source.Name)
	condition := meta.FindStatusCondition(rule.Conditions, rulestatus.ConditionEvictionHeld)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return Hold{}
	}
	at := slices.IndexFunc(unseen, func(why checks.Reason) bool { return why.Condition() == condition.Reason })
	if at < 0 {
		return Hold{}
	}
	by := "DeviceTaintRule/" + rule.Name
	return Hold{Reason: unseen[at], By: by, Why: condition.Message, Since: condition.LastTransitionTime.Time, Word: "status of " + by}
}

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
// EventReasonsHeldUp are ignored, and so are other objects.
func (s *Events) Add(object any) {
	event, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	if s.refused == nil {
		s.notices, s.refused = map[holdKey]notice{}, map[types.UID]refusal{}
	}
	at, about := EventTime(event), &event.InvolvedObject
	if slices.Contains(evictor.EventReasonsHeldUp(), event.Reason) {
		if !s.refused[about.UID].at.After(at) {
			s.refused[about.UID] = refusal{why: cmp.Or(event.Annotations[v1alpha1.AnnotationHeldUpBecause], event.Message), at: at}
		}
		return
	}
	if event.Reason != evictor.EventHeld && event.Reason != evictor.EventReleased {
		return
	}
	reason := checks.Reason(event.Annotations[v1alpha1.AnnotationHeldReason])
	key := holdKey{about.Kind, about.Name, event.Annotations[v1alpha1.AnnotationHeldTaint], reason}
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
