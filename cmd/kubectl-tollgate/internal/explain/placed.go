package explain

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Eviction is how a pod is evicted, and what may hold it.
type Eviction struct {
	// By is Tollgate or Kubernetes.
	By string `json:"by"`
	// Policy is the EvictionPolicy of the pod; without one it is deleted when it is due.
	Policy string `json:"policy,omitempty"`
	Method string `json:"method"`
	// DeleteAfter is the time after the deadline at which a pod that could not be evicted is
	// deleted.
	DeleteAfter *metav1.Duration `json:"deleteAfter,omitempty"`
	Paused      bool             `json:"paused,omitempty"`
	Protected   bool             `json:"protected,omitempty"`
	// Breakers are the policies whose breakers count the pod, and Tripped those that hold it now.
	Breakers []string `json:"breakers,omitempty"`
	Tripped  []string `json:"tripped,omitempty"`
	// Budgets are the PodDisruptionBudgets of the pod. They count with the method Evict alone.
	Budgets []Budget `json:"budgets,omitempty"`
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Name string `json:"name"`
	// Allowed is the number of pods that it allows to be evicted now.
	Allowed int32 `json:"disruptionsAllowed"`
}

// placed explains a pod on a node.
func (w *World) placed(p *Pod, pod *corev1.Pod) {
	situation := w.situation(pod)
	p.Taints = w.onNode(pod, &situation)
	moment := w.Evictions.At(w.Now)
	if e, leaves := moment.Eviction(&situation); leaves {
		p.Leaves = cli.TimeOrNone(e.At)
		p.Eviction = evictionOf(moment, &situation.Pod, &e)
		w.leaving(p, pod, &e)
		return
	}
	causes := []Cause{{CauseUntainted, "no taint with effect NoExecute holds for it"}}
	switch {
	case situation.Pod.Mirror:
		causes[0] = Cause{CauseStatic, "it is a static pod, which its kubelet runs whatever the taints"}
	case len(situation.Taints)+len(situation.Devices) > 0:
		causes[0] = Cause{CauseTolerated, "it tolerates for ever what would make it leave: " + strings.Join(w.tolerated(p, &situation), ", ")}
	}
	if pod.Status.Phase == corev1.PodPending {
		causes = append(causes, Cause{CauseStarting, "its containers have not started, which is a matter of the kubelet" + because(pod.Status.Reason, pod.Status.Message)})
	}
	p.conclude(Staying, "Stays on node "+pod.Spec.NodeName, causes...)
}

// tolerated returns the NoExecute taints that apply to a pod that stays, with the tolerations that
// match them.
func (w *World) tolerated(p *Pod, situation *tracker.Situation) []string {
	var words []string
	for _, t := range p.Taints {
		if t.Tolerated && strings.HasSuffix(t.Taint, ":"+string(corev1.TaintEffectNoExecute)) {
			text := t.Taint + " of its node (toleration " + t.By
			if strings.HasPrefix(p.Controller, "DaemonSet/") && strings.HasPrefix(t.By, "node.kubernetes.io/") {
				text += ", which the DaemonSet controller adds"
			}
			words = append(words, text+")")
		}
	}
	for _, used := range situation.Devices {
		for _, taint := range used.Taints {
			m := matchDevice(used.Tolerations, &taint)
			words = append(words, m.Taint+" of device "+used.ID.String()+" ("+m.Source+"; toleration "+m.By+" of claim "+used.Claim.Name+")")
		}
	}
	return words
}

// leaving explains a pod that has to leave, now or later.
func (w *World) leaving(p *Pod, pod *corev1.Pod, e *evictions.Eviction) {
	reason := &e.Because[0]
	cause := Cause{causeOf(reason), w.why(pod, reason)}
	node := "node " + pod.Spec.NodeName
	switch {
	case e.State == evictions.Protected:
		p.Leaves = cli.TimeOrNone(e.Hold.Until)
		p.conclude(Held, "Stays on "+node, Cause{CauseProtected, e.Hold.By + " protects it from " + w.taintOf(reason) + ", because of which it would leave" + w.until(&e.Hold)})
	case !e.Hold.None() && e.At.After(w.Now):
		p.conclude(Held, "Held on "+node+", which it would have to leave "+in(e.At, w.Now), w.holdCause(p, e), cause)
	case !e.Hold.None():
		p.conclude(Held, "Held on "+node+", which it had to leave "+ago(e.At, w.Now), w.holdCause(p, e), cause)
	case e.At.After(w.Now):
		p.conclude(Leaving, "Has to leave "+node+" "+in(e.At, w.Now), cause)
	default:
		p.conclude(Due, "Has to leave "+node+" now (due "+ago(e.At, w.Now)+")", cause)
	}
}

func causeOf(reason *decide.Reason) CauseKind {
	if reason.Device == (device.ID{}) {
		return CauseNodeTaint
	}
	return CauseDeviceTaint
}

// taintOf returns the taint of a reason, and its object.
func (w *World) taintOf(reason *decide.Reason) string {
	text, source := "taint "+reason.Taint.String()+" of ", sourceWords(reason.Taint.Author())
	if reason.Device == (device.ID{}) {
		return text + source
	}
	return text + "device " + reason.Device.String() + ", from " + source
}

// why describes a reason to leave, with the toleration that ends first, which the evictor uses.
func (w *World) why(pod *corev1.Pod, reason *decide.Reason) string {
	var m Taint
	claim := ""
	if reason.Device == (device.ID{}) {
		native := reason.Taint.Native()
		m = match(w.Rules, pod.Spec.Tolerations, &native)
	} else {
		claim = " of claim " + reason.Claim.Name
		for _, used := range w.situation(pod).Devices {
			if used.ID == reason.Device && used.Claim == reason.Claim {
				tolerations := slices.Clone(used.Tolerations)
				slices.SortStableFunc(tolerations, func(a, b resourcev1.DeviceToleration) int { return cmp.Compare(lasting(&a), lasting(&b)) })
				m = matchDevice(tolerations, &reason.Taint)
				break
			}
		}
	}
	near := ""
	if len(m.Near) > 0 {
		near = " (" + strings.Join(m.Near, ", ") + ")"
	}
	text := w.taintOf(reason)
	switch {
	case reason.Tolerated && reason.At.After(w.Now):
		return text + " is tolerated for a while, which ends then (toleration " + m.By + claim + ")"
	case reason.Tolerated:
		return text + " was tolerated for a while, which is over (toleration " + m.By + claim + ")"
	case reason.At.After(w.Now):
		return text + " counts from then on, and is not tolerated" + near
	default:
		return text + " is not tolerated" + near
	}
}

// lasting returns the seconds of a toleration.
func lasting(t *resourcev1.DeviceToleration) int64 {
	if t.TolerationSeconds == nil || t.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return math.MaxInt64
	}
	return *t.TolerationSeconds
}

// evictionOf returns how a pod is evicted because of the first reason.
func evictionOf(moment *evictions.Moment, pod *tracker.Pod, found *evictions.Eviction) *Eviction {
	way := &found.Way
	e := &Eviction{By: found.By, Policy: found.Policy, Protected: way.Protected, Method: string(v1alpha1.EvictionMethodDelete)}
	for _, budget := range moment.Tracker.Budgets(pod.Namespace) {
		if budget.Guards(pod) {
			e.Budgets = append(e.Budgets, Budget{Name: budget.Name, Allowed: budget.Allowed})
		}
	}
	if way.Policy != nil {
		e.Method, e.Paused = string(way.Policy.Method), way.Policy.Paused
		if after := way.Policy.DeleteAfter; after != nil {
			e.DeleteAfter = &metav1.Duration{Duration: *after}
		}
	}
	for _, breaker := range way.Breakers {
		e.Breakers = append(e.Breakers, breaker.Name)
		if _, tripped := moment.Tripped[breaker.UID]; tripped {
			e.Tripped = append(e.Tripped, breaker.Name)
		}
	}
	return e
}

// holdCause returns the hold of a pod.
func (w *World) holdCause(p *Pod, e *evictions.Eviction) Cause {
	why, end := strings.TrimSuffix(e.Hold.Why, "."), w.until(&e.Hold)
	switch e.Hold.Reason {
	case checks.Paused:
		return Cause{CausePaused, e.Hold.By + " is paused" + end}
	case checks.BreakerTripped:
		return Cause{CauseBreaker, "the breaker of " + e.Hold.By + " has let as many pods go as it may, until an EvictionApproval or the end of its window" + end}
	case checks.Budget:
		if after := p.Eviction.DeleteAfter; after != nil && e.Hold.Until.Equal(e.At.Add(after.Duration)) {
			end = "; it is deleted " + in(e.Hold.Until, w.Now) + " all the same (deleteAfter)"
		}
		switch budgets := p.Eviction.Budgets; {
		case !strings.HasPrefix(e.Hold.By, "PodDisruptionBudget/"): // The API server refused the eviction.
		case len(budgets) > 1:
			why = "the Eviction API takes no pod that " + cli.Counted(len(budgets), "PodDisruptionBudget") + " guard"
		default:
			why = "PodDisruptionBudget " + budgets[0].Name + " lets none of its pods go at the moment, and EvictionPolicy/" + p.Eviction.Policy + " evicts with the method Evict"
		}
		return Cause{CauseBudget, why + end}
	case checks.Protected, checks.NodesDown, checks.Looping, checks.TwinMissing, checks.NamespaceUnknown:
	}
	return Cause{CauseHeld, e.By + " says that it holds pods: " + why + end}
}

// until returns when a hold ends; empty for never.
func (w *World) until(hold *evictions.Hold) string {
	if hold.Until.IsZero() {
		return ""
	}
	return "; it leaves " + in(hold.Until, w.Now) + " all the same"
}
