package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Eviction is how a pod leaves, or what keeps it.
type Eviction struct {
	// By says who evicts.
	By string `json:"by"`
	// Policy is the EvictionPolicy that governs, empty for none: then the pod is deleted
	// when it is due.
	Policy string `json:"policy,omitempty"`
	Method string `json:"method"`
	// DeleteAfter is how long after it is due a pod is deleted that could not be evicted.
	DeleteAfter *metav1.Duration `json:"deleteAfter,omitempty"`
	Paused      bool             `json:"paused,omitempty"`
	Protected   bool             `json:"protected,omitempty"`
	// Breakers are those that count the pod, and Tripped those of them that hold now.
	Breakers []string `json:"breakers,omitempty"`
	Tripped  []string `json:"tripped,omitempty"`
	// Budgets are the PodDisruptionBudgets about the pod, with how many of their pods may
	// go at the moment. They count with the method Evict alone.
	Budgets []Budget `json:"budgets,omitempty"`
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Name string `json:"name"`
	// Allowed is how many of its pods may go at the moment.
	Allowed int32 `json:"disruptionsAllowed"`
}

// placed tells of a pod on a node.
func (w *World) placed(p *Pod, pod *corev1.Pod, now time.Time) {
	situation := w.situation(pod)
	p.Taints = w.onNode(now, pod, &situation)
	if e, leaves := w.Evictions.Judge(now).Of(&situation); leaves {
		p.Leaves = stamp(e.At)
		p.Eviction = w.eviction(&situation.Pod, &e)
		w.leaving(p, pod, &e, now)
		return
	}
	var causes []Cause
	switch {
	case situation.Pod.Mirror:
		causes = append(causes, Cause{CauseStatic, "it is a static pod, which its kubelet runs whatever the taints"})
	case len(situation.Taints)+len(situation.Devices) > 0:
		causes = append(causes, Cause{CauseTolerated, "it tolerates for ever what would make it leave: " + strings.Join(w.tolerated(p, &situation), ", ")})
	default:
		causes = append(causes, Cause{CauseUntainted, "no taint with effect NoExecute holds for it"})
	}
	if pod.Status.Phase == corev1.PodPending {
		causes = append(causes, Cause{CauseStarting, "its containers have not started, which is a matter of the kubelet" + because(pod.Status.Reason, pod.Status.Message)})
	}
	p.conclude(Staying, "Stays on node "+pod.Spec.NodeName, causes...)
}

// tolerated names the NoExecute taints that hold for a pod which stays, with what meets
// them.
func (w *World) tolerated(p *Pod, situation *tracker.Situation) []string {
	var words []string
	for i := range p.Taints {
		if t := &p.Taints[i]; t.Tolerated && strings.HasSuffix(t.Taint, ":"+string(corev1.TaintEffectNoExecute)) {
			text := t.Taint + " of its node (toleration " + t.By
			if strings.HasPrefix(p.Controller, "DaemonSet/") && strings.HasPrefix(t.By, "node.kubernetes.io/") {
				text += ", which the DaemonSet controller adds"
			}
			words = append(words, text+")")
		}
	}
	for i := range situation.Devices {
		used := &situation.Devices[i]
		for j := range used.Taints {
			m := meetDevice(used.Tolerations, &used.Taints[j])
			words = append(words, m.Taint+" of device "+used.ID.String()+" ("+m.Source+"; toleration "+m.By+" of claim "+used.Claim.Name+")")
		}
	}
	return words
}

// leaving tells of a pod that has to leave, now or later.
func (w *World) leaving(p *Pod, pod *corev1.Pod, e *evictions.Eviction, now time.Time) {
	reason := &e.Because[0]
	cause := Cause{causeOf(reason), w.why(pod, reason, now)}
	onNode := " on node " + pod.Spec.NodeName
	switch {
	case e.State == evictions.Protected:
		p.Leaves = stampOrNone(e.Hold.Until)
		p.conclude(Held, "Stays"+onNode, Cause{CauseProtected, e.Hold.By + " protects it from " + w.taintOf(reason) + ", because of which it would leave" + allTheSame(&e.Hold, now)})
	case !e.Hold.None() && e.At.After(now):
		p.conclude(Held, "Held"+onNode+", which it would have to leave "+in(e.At, now), w.held(p, e, now), cause)
	case !e.Hold.None():
		p.conclude(Held, "Held"+onNode+", which it had to leave "+ago(e.At, now), w.held(p, e, now), cause)
	case e.At.After(now):
		p.conclude(Leaving, "Has to leave node "+pod.Spec.NodeName+" "+in(e.At, now), cause)
	default:
		p.conclude(Due, "Has to leave node "+pod.Spec.NodeName+" now (due "+ago(e.At, now)+")", cause)
	}
}

func causeOf(reason *evictor.Reason) CauseKind {
	if reason.Device == (device.ID{}) {
		return CauseNodeTaint
	}
	return CauseDeviceTaint
}

// taintOf names the taint of a reason, and what carries it.
func (w *World) taintOf(reason *evictor.Reason) string {
	text := "taint " + reason.Taint.String() + " of "
	if reason.Device == (device.ID{}) {
		return text + sourceWords(reason.Taint.Author())
	}
	return text + "device " + reason.Device.String() + ", from " + sourceWords(reason.Taint.Author())
}

// why says because of what a pod has to leave.
func (w *World) why(pod *corev1.Pod, reason *evictor.Reason, now time.Time) string {
	text := w.taintOf(reason)
	met, claim := w.metBy(pod, reason)
	if claim != "" {
		claim = " of claim " + claim
	}
	switch {
	case reason.Tolerated && reason.At.After(now):
		return text + " is tolerated for a while, which ends then (toleration " + met.By + claim + ")"
	case reason.Tolerated:
		return text + " was tolerated for a while, which is over (toleration " + met.By + claim + ")"
	case reason.At.After(now):
		return text + " counts from then on, and is not tolerated" + nearClause(met.Near)
	default:
		return text + " is not tolerated" + nearClause(met.Near)
	}
}

func nearClause(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return " (" + nearWords(near) + ")"
}

// metBy says what meets the taint of a reason: the toleration that ends first, which is the
// one that the evictor goes by.
func (w *World) metBy(pod *corev1.Pod, reason *evictor.Reason) (met Taint, claim string) {
	if reason.Device == (device.ID{}) {
		native := reason.Taint.Native()
		met = meet(w.Rules, pod.Spec.Tolerations, &native)
		return met, ""
	}
	situation := w.situation(pod)
	for i := range situation.Devices {
		if used := &situation.Devices[i]; used.ID == reason.Device && used.Claim == reason.Claim {
			tolerations := slices.Clone(used.Tolerations)
			slices.SortStableFunc(tolerations, func(a, b deviceToleration) int { return cmp.Compare(secondsOf(&a), secondsOf(&b)) })
			return meetDevice(tolerations, &reason.Taint), reason.Claim.Name
		}
	}
	return Taint{}, reason.Claim.Name
}

// eviction says how a pod leaves because of the first of the reasons for an eviction.
func (w *World) eviction(pod *tracker.Pod, found *evictions.Eviction) *Eviction {
	e := &Eviction{By: found.By, Method: string(v1alpha1.EvictionMethodDelete)}
	budgets := w.Tracker.Budgets(pod.Namespace)
	for i := range budgets {
		if budgets[i].Guards(pod) {
			e.Budgets = append(e.Budgets, Budget{Name: budgets[i].Name, Allowed: budgets[i].Allowed})
		}
	}
	if found.By != evictions.ByTollgate {
		return e
	}
	subject := evictor.SubjectOf(pod, w.Evictions.Namespaces)
	// Where labels are not known, nothing speaks for the pod, as in forecasts.
	way, err := evictor.Treat(w.Evictions.Set, &found.Because[0], &subject)
	if err != nil {
		return e
	}
	if way.Policy != nil {
		e.Policy, e.Method, e.Paused, e.Protected = way.Policy.Name, string(way.Policy.Method), way.Policy.Paused, way.Protected
		if after := way.Policy.DeleteAfter; after != nil {
			e.DeleteAfter = &metav1.Duration{Duration: *after}
		}
	}
	for _, breaker := range way.Breakers {
		e.Breakers = append(e.Breakers, breaker.Name)
		if w.tripped(breaker.Name) {
			e.Tripped = append(e.Tripped, breaker.Name)
		}
	}
	return e
}

// tripped reports whether the breaker of an EvictionPolicy holds pods now.
func (w *World) tripped(policy string) bool {
	return slices.ContainsFunc(w.Evictions.Policies, func(stored v1alpha1.EvictionPolicy) bool {
		return stored.Name == policy && stored.Status.Breaker != nil && stored.Status.Breaker.Tripped != nil
	})
}

// held says what keeps a pod from leaving.
func (w *World) held(p *Pod, e *evictions.Eviction, now time.Time) Cause {
	end := allTheSame(&e.Hold, now)
	switch e.Hold.Reason {
	case evictor.HoldPaused:
		return Cause{CausePaused, e.Hold.By + " is paused" + end}
	case evictor.HoldBreakerTripped:
		return Cause{CauseBreaker, "the breaker of " + e.Hold.By + " has let as many pods go as it may, until an EvictionApproval or the end of its window" + end}
	case evictor.HoldBudget:
		if after := p.Eviction.DeleteAfter; after != nil && e.Hold.Until.Equal(e.At.Add(after.Duration)) {
			end = "; it is deleted " + in(e.Hold.Until, now) + " all the same (deleteAfter)"
		}
		return Cause{CauseBudget, budgetWords(p.Eviction, &e.Hold) + end}
	case evictor.HoldProtected, evictor.HoldNodesDown, evictor.HoldLooping, evictor.HoldTwinMissing, evictor.HoldNamespaceUnknown:
	}
	return Cause{CauseHeld, e.By + " says that it holds pods: " + strings.TrimSuffix(e.Hold.Why, ".") + end}
}

// budgetWords says why disruption budgets do not let a pod go, or why the API server says
// that it does not.
func budgetWords(e *Eviction, hold *evictions.Hold) string {
	switch {
	case !strings.HasPrefix(hold.By, "PodDisruptionBudget/"):
		return strings.TrimSuffix(hold.Why, ".")
	case len(e.Budgets) > 1:
		return "the Eviction API takes no pod that " + counted(len(e.Budgets), "PodDisruptionBudget") + " guard"
	default:
		return "PodDisruptionBudget " + e.Budgets[0].Name + " lets none of its pods go at the moment, and EvictionPolicy/" + e.Policy + " evicts with the method Evict"
	}
}

// allTheSame says when a pod leaves that is held; empty for never.
func allTheSame(hold *evictions.Hold, now time.Time) string {
	if hold.Until.IsZero() {
		return ""
	}
	return "; it leaves " + in(hold.Until, now) + " all the same"
}
