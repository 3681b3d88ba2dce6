package explain

import (
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Taint is a taint, and what meets it.
type Taint struct {
	// Taint is what kubectl would write.
	Taint string `json:"taint"`
	// Source is the object that somebody wrote it into, and Device the device that has it;
	// empty for one of a node.
	Source string `json:"source,omitempty"`
	Device string `json:"device,omitempty"`
	// Since is the time from which it counts; absent where nobody wrote it.
	Since *metav1.Time `json:"since,omitempty"`
	// Tolerated is true when a toleration meets it, By.
	Tolerated bool   `json:"tolerated"`
	By        string `json:"by,omitempty"`
	// Near says of tolerations of the same key why they do not meet it.
	Near []string `json:"near,omitempty"`
	// Leaves is when the pod has to leave because of it; absent for never.
	Leaves *metav1.Time `json:"leaves,omitempty"`
}

// meet says which toleration of a pod meets a taint of a node.
func meet(rules evictor.Rules, tolerations []corev1.Toleration, taint *corev1.Taint) Taint {
	m := Taint{Taint: taintWords(taint)}
	if taint.TimeAdded != nil && !taint.TimeAdded.IsZero() {
		m.Since = taint.TimeAdded
	}
	for i := range tolerations {
		t := &tolerations[i]
		if rules.Tolerates(t, taint) {
			m.Tolerated, m.By, m.Near = true, tolerationWords(t), nil
			return m
		}
		if t.Key == taint.Key {
			m.Near = append(m.Near, "its toleration "+tolerationWords(t)+" "+mismatch(rules, t, taint))
		}
	}
	return m
}

// mismatch says why a toleration of the same key does not meet a taint.
func mismatch(rules evictor.Rules, t *corev1.Toleration, taint *corev1.Taint) string {
	switch compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt; {
	case t.Effect != "" && t.Effect != taint.Effect:
		return "is for the effect " + string(t.Effect)
	case compares && !rules.ComparisonOperators:
		return "has the operator " + string(t.Operator) + ", which Tollgate does not honour (eviction.comparisonOperators is off)"
	case compares:
		return "does not hold for the value " + taint.Value
	default:
		return "has another value"
	}
}

// meetDevice says which toleration of an allocation, or of a request, meets a taint of a
// device.
func meetDevice(tolerations []resourcev1.DeviceToleration, taint *tracker.Taint) Taint {
	met := resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect)}
	m := Taint{Taint: taint.String(), Source: sourceWords(taint.Author()), Since: stamp(taint.TimeAdded)}
	for i := range tolerations {
		t := &tolerations[i]
		if resourceclaim.ToleratesTaint(*t, met) {
			m.Tolerated, m.By, m.Near = true, deviceTolerationWords(t), nil
			return m
		}
		switch {
		case t.Key != taint.Key:
		case t.Effect != "" && string(t.Effect) != string(taint.Effect):
			m.Near = append(m.Near, "the toleration "+deviceTolerationWords(t)+" is for the effect "+string(t.Effect))
		default:
			m.Near = append(m.Near, "the toleration "+deviceTolerationWords(t)+" has another value")
		}
	}
	return m
}

// repels reports whether a taint keeps new pods off.
func repels(effect corev1.TaintEffect) bool {
	return effect == corev1.TaintEffectNoSchedule || effect == corev1.TaintEffectNoExecute
}

// leaves returns when a pod has to leave because of one taint alone; nil for never.
func (w *World) leaves(now time.Time, alone tracker.Situation) *metav1.Time {
	decision := w.Rules.Decide(now, alone)
	if decision.Verdict != evictor.EvictAt {
		return nil
	}
	return stamp(decision.At)
}

// onNode returns the taints of the node that a pod is on, and what meets them.
func (w *World) onNode(now time.Time, pod *corev1.Pod, situation *tracker.Situation) []Taint {
	node := w.node(pod.Spec.NodeName)
	if node == nil {
		return nil
	}
	var taints []Taint
	for i := range node.Spec.Taints {
		m := meet(w.Rules, pod.Spec.Tolerations, &node.Spec.Taints[i])
		m.Source = "node " + node.Name
		at := slices.IndexFunc(situation.Taints, func(t tracker.Taint) bool {
			return t.Key == node.Spec.Taints[i].Key && t.Effect == node.Spec.Taints[i].Effect
		})
		if at >= 0 {
			m.Leaves = w.leaves(now, tracker.Situation{Pod: situation.Pod, Taints: situation.Taints[at : at+1]})
		}
		taints = append(taints, m)
	}
	return taints
}

// nearWords joins what is said of tolerations that are close.
func nearWords(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return strings.Join(near, ", ")
}

type deviceToleration = resourcev1.DeviceToleration

// secondsOf orders tolerations of devices by how long they last.
func secondsOf(t *deviceToleration) int64 {
	if t.TolerationSeconds == nil || t.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return math.MaxInt64
	}
	return *t.TolerationSeconds
}
