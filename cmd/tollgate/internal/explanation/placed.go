package explanation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/evicting"
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
	decision := w.Rules.Decide(now, situation)
	p.Eviction = w.eviction(&situation.Pod, decision)
	if decision.Verdict == evictor.EvictAt {
		w.leaving(p, pod, &situation.Pod, decision, now)
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
func (w *World) leaving(p *Pod, pod *corev1.Pod, known *tracker.Pod, decision evictor.Decision, now time.Time) {
	ways := w.treatments(known, decision)
	first := slices.IndexFunc(ways, func(t evicting.Treatment) bool { return !t.Protected })
	if first < 0 {
		reason := &decision.Because[0]
		p.conclude(Held, "Stays on node "+pod.Spec.NodeName, Cause{CauseProtected, ways[0].Policy.Ref() + " protects it from " + w.taintOf(reason) + ", because of which it would leave"})
		return
	}
	reason := &decision.Because[first]
	p.Leaves = stamp(reason.At)
	cause := Cause{causeOf(reason), w.why(pod, reason, now)}
	if reason.At.After(now) {
		p.conclude(Leaving, "Has to leave node "+pod.Spec.NodeName+" "+in(reason.At, now), cause)
		return
	}
	holds := w.holds(p, &ways[first], reason.At, now)
	if len(holds) == 0 {
		holds = w.toldHeld(p, reason)
	}
	if len(holds) > 0 {
		p.conclude(Held, "Held on node "+pod.Spec.NodeName+", which it had to leave "+ago(reason.At, now), append(holds, cause)...)
		return
	}
	p.conclude(Due, "Has to leave node "+pod.Spec.NodeName+" now (due "+ago(reason.At, now)+")", cause)
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

// treatments returns how a pod leaves because of each reason. Where it cannot be told,
// nothing speaks for the pod, as in forecasts.
func (w *World) treatments(pod *tracker.Pod, decision evictor.Decision) []evicting.Treatment {
	subject := evicting.Subject{Namespace: pod.Namespace, Labels: pod.Labels(), PriorityClassName: pod.PriorityClassName()}
	if w.NamespaceLabels != nil {
		subject.NamespaceLabels, subject.NamespaceKnown = w.NamespaceLabels(pod.Namespace)
	}
	ways := make([]evicting.Treatment, len(decision.Because))
	for i := range decision.Because {
		taint := &decision.Because[i].Taint
		target := v1alpha1.TaintTargetNode
		if taint.Source.Kind.OnDevice() {
			target = v1alpha1.TaintTargetDevice
		}
		way, err := w.Foretold.For(&evicting.Taint{
			Target: target, Driver: decision.Because[i].Device.Driver, Key: taint.Key, Value: taint.Value, Effect: taint.Effect,
		}, &subject)
		if err == nil {
			ways[i] = way
		}
	}
	return ways
}

// eviction says how a pod leaves because of its first reason; nil without one.
func (w *World) eviction(pod *tracker.Pod, decision evictor.Decision) *Eviction {
	if decision.Verdict != evictor.EvictAt {
		return nil
	}
	ways := w.treatments(pod, decision)
	way := ways[0]
	if first := slices.IndexFunc(ways, func(t evicting.Treatment) bool { return !t.Protected }); first >= 0 {
		way = ways[first]
	}
	e := &Eviction{By: w.Evicts, Method: string(v1alpha1.EvictionMethodDelete)}
	if way.Policy != nil {
		e.Policy, e.Method, e.Paused, e.Protected = way.Policy.Name, string(way.Policy.Method), way.Policy.Paused, way.Protected
		if after := way.Policy.DeleteAfter; after != nil {
			e.DeleteAfter = &metav1.Duration{Duration: *after}
		}
	}
	for _, breaker := range way.Breakers {
		e.Breakers = append(e.Breakers, breaker.Name)
		if stored := w.evictionPolicy(breaker.Name); stored != nil && stored.Status.Breaker != nil && stored.Status.Breaker.Tripped != nil {
			e.Tripped = append(e.Tripped, breaker.Name)
		}
	}
	budgets := w.Tracker.Budgets(pod.Namespace)
	for i := range budgets {
		if budgets[i].Guards(pod) {
			e.Budgets = append(e.Budgets, Budget{Name: budgets[i].Name, Allowed: budgets[i].Allowed})
		}
	}
	return e
}

// holds says what keeps a pod that is due from leaving.
func (w *World) holds(p *Pod, way *evicting.Treatment, at, now time.Time) []Cause {
	var causes []Cause
	if way.Policy == nil {
		return nil
	}
	if way.Policy.Paused {
		causes = append(causes, Cause{CausePaused, way.Policy.Ref() + " is paused"})
	}
	for _, name := range p.Eviction.Tripped {
		causes = append(causes, Cause{CauseBreaker, "the breaker of EvictionPolicy/" + name + " has let as many pods go as it may, until an EvictionApproval or the end of its window"})
	}
	if way.Policy.Method != v1alpha1.EvictionMethodEvict || len(causes) > 0 {
		return causes
	}
	end := ""
	if after := way.Policy.DeleteAfter; after != nil {
		deleted := at.Add(*after)
		if !deleted.After(now) {
			return nil
		}
		end = "; it is deleted " + in(deleted, now) + " all the same (deleteAfter)"
	}
	for _, b := range p.Eviction.Budgets {
		if b.Allowed == 0 {
			causes = append(causes, Cause{CauseBudget, "PodDisruptionBudget " + b.Name + " lets none of its pods go at the moment, and " + way.Policy.Ref() + " evicts with the method Evict" + end})
		}
	}
	if len(p.Eviction.Budgets) > 1 {
		causes = append(causes, Cause{CauseBudget, "the Eviction API takes no pod that " + counted(len(p.Eviction.Budgets), "PodDisruptionBudget") + " guard"})
	}
	return causes
}

// toldHeld says what Tollgate has told of holds that are not to be seen from here, such as
// that all nodes are down: of an object that carries the taint, since the taint is there.
func (w *World) toldHeld(p *Pod, reason *evictor.Reason) []Cause {
	kinds := map[tracker.SourceKind]string{
		tracker.SourceNode: "Node", tracker.SourceRule: "DeviceTaintRule", tracker.SourcePatch: "ResourceSlicePatch", tracker.SourceSlice: "ResourceSlice",
	}
	carriers := []tracker.Source{reason.Taint.Source, reason.Taint.Author()}
	events := newest(w.Events, func(e *corev1.Event) bool {
		of := " because of taint " + reason.Taint.String()
		return (e.Reason == reasonHeld || e.Reason == reasonReleased) && !when(e).Before(reason.Taint.TimeAdded) && strings.Contains(e.Message, of) &&
			slices.ContainsFunc(carriers, func(s tracker.Source) bool {
				return kinds[s.Kind] == e.InvolvedObject.Kind && s.Name == e.InvolvedObject.Name
			})
	})
	if len(events) == 0 || events[0].Reason != reasonHeld {
		return nil
	}
	p.Events = append(p.Events, told(events[:1])...)
	_, why, _ := strings.Cut(events[0].Message, " because of taint "+reason.Taint.String()+": ")
	return []Cause{{CauseHeld, w.Evicts + " says that it holds pods: " + strings.TrimSuffix(why, ".")}}
}
