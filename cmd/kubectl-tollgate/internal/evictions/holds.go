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
	var protected, held *Eviction
	for i := range because {
		reason := &because[i]
		way, unknown := decide.Treat(m.Set, reason, &subject)
		e := Eviction{
			State: m.stateAt(reason.At), At: reason.At, By: ByTollgate, Way: way, Hold: m.hold(pod, reason, way, unknown),
			Because: slices.Concat(because[i:i+1], because[:i], because[i+1:]),
		}
		if way.Policy != nil {
			e.Policy = way.Policy.Name
		}
		if !e.Hold.None() {
			e.State = cmp.Or(holdStates[e.Hold.Reason], Held)
		}
		switch {
		case e.State == Protected:
			protected = cmp.Or(protected, &e)
		case held == nil && !e.Hold.None():
			held = &e
		case !e.Hold.None():
			held.Hold.Until = earliest(held.Hold.Until, e.Hold.Until)
		case held == nil || !e.At.After(m.now):
			return e
		default:
			held.Hold.Until = earliest(held.Hold.Until, e.At)
			return *held
		}
	}
	return *cmp.Or(held, protected)
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
	if m.now.Sub(reason.At) >= 3*time.Second {
		if hold := m.reported(reason); !hold.None() && (hold.Reason != checks.Looping || way.Policy != nil) {
			return hold
		}
	}
	hold := m.budget(pod, reason, way.Policy)
	if refused, ok := m.Events.notices[holdKey{pod: pod.UID}]; ok && hold.None() && !refused.at.Before(reason.At) {
		hold = Hold{Reason: checks.Budget, By: "Pod/" + pod.String(), Why: refused.text, Since: reason.At, Word: "event of Pod/" + pod.String()}
	}
	return hold
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
	var allowed int32
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
	hold.Why += ". " + policy.Ref()
	if policy.DeleteAfter == nil {
		hold.Why += " has no deleteAfter: without the budget's leave the pod stays"
	} else {
		hold.Why += " has it deleted " + duration.HumanDuration(*policy.DeleteAfter) + " after it was due (deleteAfter)"
	}
	return hold
}

// reported returns the hold that only Tollgate knows, of any pod with a taint: from events on the
// object with the taint or its patch, or from the status of a rule.
func (m *Moment) reported(reason *decide.Reason) Hold {
	taint, object := reason.Taint.String(), reason.Taint.Source
	for _, source := range []tracker.Source{reason.Taint.Author(), object} {
		kind := source.Kind.Object()
		for _, why := range unseen {
			if told, found := m.Events.notices[holdKey{kind, source.Name, taint, why, ""}]; found && !told.over {
				by := kind + "/" + source.Name
				return Hold{Reason: why, By: by, Why: why.Explain(told.text), Since: told.at, Word: "event of " + by}
			}
		}
	}
	if object.Kind != tracker.SourceRule {
		return Hold{}
	}
	rule, _ := m.Tracker.Rule(object.Name)
	condition := meta.FindStatusCondition(rule.Conditions, rulestatus.ConditionEvictionHeld)
	for _, why := range unseen {
		if condition != nil && condition.Status == metav1.ConditionTrue && condition.Reason == why.Condition() {
			by := "DeviceTaintRule/" + rule.Name
			return Hold{Reason: why, By: by, Why: condition.Message, Since: condition.LastTransitionTime.Time, Word: "status of " + by}
		}
	}
	return Hold{}
}

// unseen are the holds that only Tollgate knows; the others follow from objects of the cluster.
var unseen = []checks.Reason{checks.Looping, checks.TwinMissing, checks.NamespaceUnknown}

// Events has the holds that events report. The zero Events has none. It is not safe for
// concurrent use.
type Events struct{ notices map[holdKey]notice }

// holdKey identifies a hold because of a taint of an object, or the refused eviction of a pod.
type holdKey struct {
	kind, name, taint string
	reason            checks.Reason
	pod               types.UID
}

// notice is the latest event about a hold.
type notice struct {
	// text is the name of the policy, or why the eviction was refused.
	text string
	// over is true if no pod is held any more.
	over bool
	at   time.Time
}

// Add adds an event, in any order. Events with other reasons than evictor.EventHeld, EventReleased and
// EventReasonsHeldUp are ignored, and so are other objects.
func (s *Events) Add(object any) {
	event, ok := object.(*corev1.Event)
	if !ok {
		return
	}
	about, said := &event.InvolvedObject, event.Annotations
	key := holdKey{about.Kind, about.Name, said[v1alpha1.AnnotationHeldTaint], checks.Reason(said[v1alpha1.AnnotationHeldReason]), ""}
	read := notice{said[v1alpha1.AnnotationHeldPolicy], event.Reason == evictor.EventReleased, EventTime(event)}
	switch {
	case slices.Contains(evictor.EventReasonsHeldUp(), event.Reason):
		key, read.text = holdKey{pod: about.UID}, cmp.Or(said[v1alpha1.AnnotationHeldUpBecause], event.Message)
	case event.Reason != evictor.EventHeld && !read.over:
		return
	}
	if before := s.notices[key]; read.at.After(before.at) || (read.at.Equal(before.at) && !read.over) {
		if s.notices == nil {
			s.notices = map[holdKey]notice{}
		}
		s.notices[key] = read
	}
}

// EventTime returns the last time of an event.
func EventTime(event *corev1.Event) time.Time {
	times := []time.Time{event.LastTimestamp.Time, event.EventTime.Time, event.FirstTimestamp.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	at := slices.MaxFunc(times, time.Time.Compare)
	if at.IsZero() {
		at = event.CreationTimestamp.Time
	}
	return at
}
