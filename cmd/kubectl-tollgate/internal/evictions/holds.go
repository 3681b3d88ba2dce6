package evictions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// byTollgate returns the eviction of a pod by Tollgate for at least one reason. A protected
// reason comes first only if all are.
func (l *looker) byTollgate(pod *tracker.Pod, because []evictor.Reason) Eviction {
	subject := evictor.SubjectOf(pod, l.Namespaces)
	grounds := make([]ground, 0, len(because))
	for i := range because {
		way, unknown := evictor.Treat(l.Set, &because[i], &subject)
		grounds = append(grounds, ground{&because[i], way.Policy, l.hold(pod, &because[i], way, unknown)})
	}
	open := slices.DeleteFunc(slices.Clone(grounds), func(g ground) bool { return g.hold.Reason == evictor.HoldProtected })
	if len(open) == 0 {
		return evictionOf(&grounds[0], because)
	}
	free := slices.IndexFunc(open, func(g ground) bool { return g.hold.None() })
	if free == 0 || (free > 0 && !open[free].reason.At.After(l.now)) {
		e := evictionOf(&open[free], because)
		e.State = l.stateAt(e.At)
		return e
	}
	e := evictionOf(&open[0], because)
	for i := range open {
		if open[i].hold.None() {
			e.Hold.Until = earliest(e.Hold.Until, open[i].reason.At)
			break
		}
		e.Hold.Until = earliest(e.Hold.Until, open[i].hold.Until)
	}
	return e
}

// ground is a reason to leave with its policy, nil for none, and its hold.
type ground struct {
	reason *evictor.Reason
	policy *eviction.Policy
	hold   Hold
}

// evictionOf returns the eviction whose first reason is g.
func evictionOf(g *ground, because []evictor.Reason) Eviction {
	e := Eviction{At: g.reason.At, By: ByTollgate, Hold: g.hold, State: stateOf(g.hold.Reason), Because: []evictor.Reason{*g.reason}}
	for i := range because {
		if &because[i] != g.reason {
			e.Because = append(e.Because, because[i])
		}
	}
	if g.policy != nil {
		e.Policy = g.policy.Name
	}
	return e
}

// stateOf returns the state of a pod with a hold.
func stateOf(reason evictor.HoldReason) State {
	switch reason {
	case evictor.HoldPaused:
		return Paused
	case evictor.HoldProtected:
		return Protected
	case evictor.HoldBudget:
		return Blocked
	case evictor.HoldNodesDown, evictor.HoldLooping, evictor.HoldTwinMissing, evictor.HoldNamespaceUnknown, evictor.HoldBreakerTripped:
		return Held
	default:
		return Held
	}
}

// hold returns the hold of a pod for one taint. Pause and protection apply before the deadline
// too.
func (l *looker) hold(pod *tracker.Pod, reason *evictor.Reason, way eviction.Treatment, unknown error) Hold {
	due := !reason.At.After(l.now)
	// Labels that the command lacks may be known to Tollgate.
	if why, policy := evictor.HeldByPolicy(way, unknown); why != "" && why != evictor.HoldNamespaceUnknown {
		return Hold{Reason: why, By: policyRef(policy), Why: why.Explain(policy), Word: "spec of " + policyRef(policy)}
	}
	if !due {
		return Hold{}
	}
	for _, find := range []func(*tracker.Pod, *evictor.Reason, eviction.Treatment) Hold{l.nodesDown, l.breaker, l.saidOfCarrier, l.budget, l.saidOfPod} {
		if hold := find(pod, reason, way); !hold.None() {
			return hold
		}
	}
	return Hold{}
}

func policyRef(name string) string { return "EvictionPolicy/" + name }

func (l *looker) nodesDown(_ *tracker.Pod, reason *evictor.Reason, _ eviction.Treatment) Hold {
	if !l.disruption.Holds(&reason.Taint) {
		return Hold{}
	}
	return Hold{Reason: evictor.HoldNodesDown, Why: evictor.HoldNodesDown.Explain(""), Word: "taints of all nodes"}
}

// breaker returns the hold by a tripped breaker, from the status of its policy.
func (l *looker) breaker(_ *tracker.Pod, _ *evictor.Reason, way eviction.Treatment) Hold {
	for _, policy := range way.Breakers {
		status := l.statuses[policy.UID]
		if status == nil || status.Breaker == nil || status.Breaker.Tripped == nil {
			continue
		}
		return Hold{
			Reason: evictor.HoldBreakerTripped, By: policy.Ref(), Why: evictor.HoldBreakerTripped.Explain(policy.Name),
			Since: status.Breaker.Tripped.Time, Word: "status of " + policy.Ref(),
		}
	}
	return Hold{}
}

// budget returns the hold by disruption budgets, for pods that are evicted by the eviction API.
func (l *looker) budget(pod *tracker.Pod, reason *evictor.Reason, way eviction.Treatment) Hold {
	policy := way.Policy
	if policy == nil || policy.Method != v1alpha1.EvictionMethodEvict {
		return Hold{}
	}
	hold := Hold{Reason: evictor.HoldBudget, Since: reason.At}
	if policy.DeleteAfter != nil {
		hold.Until = reason.At.Add(*policy.DeleteAfter)
		if !hold.Until.After(l.now) {
			return Hold{}
		}
	}
	var guards []tracker.Budget
	for _, budget := range l.Tracker.Budgets(pod.Namespace) {
		if budget.Guards(pod) {
			guards = append(guards, budget)
		}
	}
	switch {
	case len(guards) > 1:
		var names []string
		for i := range guards {
			names = append(names, guards[i].Name)
		}
		hold.By = "PodDisruptionBudget/" + pod.Namespace + "/" + strings.Join(names, ",")
		hold.Why = fmt.Sprintf("%d PodDisruptionBudgets select the pod, and the Eviction API takes one at most%s", len(guards), endOf(policy))
		hold.Word = "selectors of the budgets"
	case len(guards) == 1 && guards[0].Allowed <= 0:
		hold.By = "PodDisruptionBudget/" + pod.Namespace + "/" + guards[0].Name
		hold.Why = "it allows no disruption now; this is tried again when it does" + endOf(policy)
		hold.Word = "status of " + hold.By
	default:
		return Hold{}
	}
	return hold
}

// endOf describes when a policy stops honouring budgets.
func endOf(policy *eviction.Policy) string {
	if policy.DeleteAfter == nil {
		return ". " + policy.Ref() + " has no deleteAfter: without the budget's leave the pod stays"
	}
	return ". " + policy.Ref() + " has it deleted " + duration.HumanDuration(*policy.DeleteAfter) + " after it was due (deleteAfter)"
}

// settleTime is how long a pod must be due before holds of other pods count for it: a pod that
// just became due may be about to leave.
const settleTime = 3 * time.Second

// saidOfCarrier returns the hold that only Tollgate knows, from events on the object with the
// taint or its patch.
func (l *looker) saidOfCarrier(_ *tracker.Pod, reason *evictor.Reason, way eviction.Treatment) Hold {
	if l.now.Sub(reason.At) < settleTime {
		return Hold{}
	}
	hold := l.carrierHold(reason)
	if hold.Reason == evictor.HoldLooping && way.Policy == nil {
		return Hold{} // The hold is of other pods: only a policy delays a pod.
	}
	return hold
}

// carrierHold returns the hold in events on the object with the taint, for any pod.
func (l *looker) carrierHold(reason *evictor.Reason) Hold {
	for _, source := range []tracker.Source{reason.Taint.Author(), reason.Taint.Source} {
		if hold, ok := l.Said.of(source, reason.Taint.String()); ok {
			return hold
		}
	}
	if reason.Taint.Source.Kind != tracker.SourceRule {
		return Hold{}
	}
	rule, _ := l.Tracker.Rule(reason.Taint.Source.Name)
	condition := meta.FindStatusCondition(rule.Conditions, rulestatus.ConditionEvictionHeld)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return Hold{}
	}
	for _, why := range unseen {
		if condition.Reason == why.Condition() {
			return Hold{
				Reason: why, By: "DeviceTaintRule/" + rule.Name, Why: condition.Message, Since: condition.LastTransitionTime.Time,
				Word: "status of DeviceTaintRule/" + rule.Name,
			}
		}
	}
	return Hold{}
}

// saidOfPod returns the hold in an event on the pod since its deadline.
func (l *looker) saidOfPod(pod *tracker.Pod, reason *evictor.Reason, _ eviction.Treatment) Hold {
	refused, ok := l.Said.refused[pod.UID]
	if !ok || refused.at.Before(reason.At) {
		return Hold{}
	}
	return Hold{Reason: evictor.HoldBudget, By: "Pod/" + pod.String(), Why: refused.why, Since: reason.At, Word: "event of Pod/" + pod.String()}
}
