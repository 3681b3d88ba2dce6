package explain

import (
	"cmp"
	"fmt"
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
func (w *World) placed(p *Pod, pod *corev1.Pod, situation *tracker.Situation) {
	p.Taints = w.onNode(situation)
	moment := w.Evictions.At(w.Now)
	if e, leaves := moment.Eviction(situation); leaves {
		p.Leaves = cli.TimeOrNone(e.At)
		p.Eviction = evictionOf(moment, &situation.Pod, &e)
		w.leaving(p, situation, &e)
		return
	}
	var tolerated []string
	for _, t := range p.Taints {
		if t.Tolerated && t.effect == corev1.TaintEffectNoExecute {
			by := t.By
			if p.ofDaemonSet() && strings.HasPrefix(by, "node.kubernetes.io/") {
				by += ", which the DaemonSet controller adds"
			}
			tolerated = append(tolerated, t.Taint+" of its node (toleration "+by+")")
		}
	}
	for _, used := range situation.Devices {
		for _, taint := range used.Taints {
			m := matchDevice(used.Tolerations, &taint)
			tolerated = append(tolerated, fmt.Sprintf("%s of device %s (%s; toleration %s of claim %s)", m.Taint, used.ID, m.Source, m.By, used.Claim.Name))
		}
	}
	switch {
	case situation.Pod.Mirror:
		p.addf(CauseStatic, "it is a static pod, which its kubelet runs whatever the taints")
	case len(situation.Taints)+len(situation.Devices) > 0:
		p.addf(CauseTolerated, "it tolerates for ever what would make it leave: %s", strings.Join(tolerated, ", "))
	default:
		p.addf(CauseUntainted, "no taint with effect NoExecute holds for it")
	}
	if pod.Status.Phase == corev1.PodPending {
		p.addf(CauseStarting, "its containers have not started, which is a matter of the kubelet%s", because(pod.Status.Reason, pod.Status.Message))
	}
	p.conclude(Staying, "Stays on node "+p.Node)
}

// leaving explains a pod that has to leave, now or later.
func (w *World) leaving(p *Pod, situation *tracker.Situation, e *evictions.Eviction) {
	held, protected := !e.Hold.None(), e.State == evictions.Protected
	if held {
		w.addHold(p, e)
	}
	if !protected {
		w.addWhy(p, "", situation, &e.Because[0])
	}
	node, when, had, later := "node "+p.Node, in(e.At, w.Now), "had", e.At.After(w.Now)
	if later {
		had = "would have"
	}
	switch {
	case protected:
		p.Leaves = cli.TimeOrNone(e.Hold.Until)
		p.conclude(Held, "Stays on "+node)
	case held:
		p.conclude(Held, "Held on "+node+", which it "+had+" to leave "+when)
	case later:
		p.conclude(Leaving, "Has to leave "+node+" "+when)
	default:
		p.conclude(Due, "Has to leave "+node+" now (due "+when+")")
	}
}

// taintOf returns the taint of a reason, and its object.
func taintOf(reason *decide.Reason) string {
	text := "taint " + reason.Taint.String() + " of "
	if reason.Taint.Source.Kind.OnDevice() {
		text += "device " + reason.Device.String() + ", from "
	}
	return text + sourceWords(reason.Taint.Author())
}

// addWhy adds a reason to leave after some words, with the toleration that ends first, which the
// evictor uses.
func (w *World) addWhy(p *Pod, text string, situation *tracker.Situation, reason *decide.Reason) {
	native := reason.Taint.Native()
	kind, m, by := CauseNodeTaint, w.match(situation.Pod.Tolerations, &native), ""
	if reason.Taint.Source.Kind.OnDevice() {
		kind, by = CauseDeviceTaint, " of claim "+reason.Claim.Name
		for _, used := range situation.Devices {
			if used.ID == reason.Device && used.Claim == reason.Claim {
				tolerations := slices.Clone(used.Tolerations)
				slices.SortStableFunc(tolerations, func(a, b resourcev1.DeviceToleration) int { return cmp.Compare(lasting(&a), lasting(&b)) })
				m = matchDevice(tolerations, &reason.Taint)
				break
			}
		}
	}
	near := bracketed(strings.Join(m.Near, ", "))
	by = " (toleration " + m.By + by + ")"
	text += taintOf(reason)
	switch later := reason.At.After(w.Now); {
	case reason.Tolerated && later:
		text += " is tolerated for a while, which ends then" + by
	case reason.Tolerated:
		text += " was tolerated for a while, which is over" + by
	case later:
		text += " counts from then on, and is not tolerated" + near
	default:
		text += " is not tolerated" + near
	}
	p.addf(kind, "%s", text)
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
	e := &Eviction{By: found.By, Policy: found.Policy, Protected: found.Way.Protected, Method: string(v1alpha1.EvictionMethodDelete)}
	for _, budget := range moment.Tracker.Budgets(pod.Namespace) {
		if budget.Guards(pod) {
			e.Budgets = append(e.Budgets, Budget{Name: budget.Name, Allowed: budget.Allowed})
		}
	}
	if policy := found.Way.Policy; policy != nil {
		e.Method, e.Paused = string(policy.Method), policy.Paused
		if policy.DeleteAfter != nil {
			e.DeleteAfter = &metav1.Duration{Duration: *policy.DeleteAfter}
		}
	}
	for _, breaker := range found.Way.Breakers {
		e.Breakers = append(e.Breakers, breaker.Name)
		if _, tripped := moment.Tripped[breaker.UID]; tripped {
			e.Tripped = append(e.Tripped, breaker.Name)
		}
	}
	return e
}

// addHold adds the hold of a pod, and when it ends if it does.
func (w *World) addHold(p *Pod, e *evictions.Eviction) {
	hold, why, end := &e.Hold, strings.TrimSuffix(e.Hold.Why, "."), ""
	if !hold.Until.IsZero() {
		end = "; it leaves " + in(hold.Until, w.Now) + " all the same"
	}
	switch hold.Reason {
	case checks.Protected:
		p.addf(CauseProtected, "%s protects it from %s, because of which it would leave%s", hold.By, taintOf(&e.Because[0]), end)
	case checks.Paused:
		p.addf(CausePaused, "%s is paused%s", hold.By, end)
	case checks.BreakerTripped:
		p.addf(CauseBreaker, "the breaker of %s has let as many pods go as it may, until an EvictionApproval or the end of its window%s", hold.By, end)
	case checks.Budget:
		if after := p.Eviction.DeleteAfter; after != nil && hold.Until.Equal(e.At.Add(after.Duration)) {
			end = "; it is deleted " + in(hold.Until, w.Now) + " all the same (deleteAfter)"
		}
		switch budgets := p.Eviction.Budgets; {
		case !strings.HasPrefix(hold.By, "PodDisruptionBudget/"): // The API server refused the eviction.
		case len(budgets) > 1:
			why = "the Eviction API takes no pod that " + cli.Counted(len(budgets), "PodDisruptionBudget") + " guard"
		default:
			why = fmt.Sprintf("PodDisruptionBudget %s lets none of its pods go at the moment, and EvictionPolicy/%s evicts with the method Evict", budgets[0].Name, e.Policy)
		}
		p.addf(CauseBudget, "%s%s", why, end)
	case checks.NodesDown, checks.Looping, checks.TwinMissing, checks.NamespaceUnknown:
		p.addf(CauseHeld, "%s says that it holds pods: %s%s", e.By, why, end)
	}
}
