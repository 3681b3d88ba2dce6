package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Taint is a taint, and the toleration that matches it.
type Taint struct {
	// Taint is in the form of kubectl.
	Taint string `json:"taint"`
	// Source is the object in which it was written, and Device the device that has it; empty for
	// one of a node.
	Source string `json:"source,omitempty"`
	Device string `json:"device,omitempty"`
	// Since is the time from which it counts; absent if it has none.
	Since *metav1.Time `json:"since,omitempty"`
	// Tolerated is true if a toleration matches it, By.
	Tolerated bool   `json:"tolerated"`
	By        string `json:"by,omitempty"`
	// Near describes why tolerations of the same key do not match.
	Near []string `json:"near,omitempty"`
	// Leaves is when the pod has to leave because of it; absent for never.
	Leaves *metav1.Time `json:"leaves,omitempty"`
}

// match returns a taint of a node with the toleration of a pod that matches it.
func match(rules decide.Rules, tolerations []corev1.Toleration, taint *corev1.Taint) Taint {
	m := Taint{Taint: taint.ToString()}
	if taint.TimeAdded != nil && !taint.TimeAdded.IsZero() {
		m.Since = taint.TimeAdded
	}
	m.match(rules.ComparisonOperators, "its", tolerations, taint, func(i int) bool { return rules.Tolerates(&tolerations[i], taint) })
	return m
}

// matchDevice returns a taint of a device with the toleration of an allocation, or of a request,
// that matches it.
func matchDevice(tolerations []resourcev1.DeviceToleration, taint *tracker.Taint) Taint {
	native := resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect)}
	m := Taint{Taint: taint.String(), Source: sourceWords(taint.Author()), Since: cli.TimeOrNone(taint.TimeAdded)}
	ofNodes := make([]corev1.Toleration, len(tolerations))
	for i, t := range tolerations {
		ofNodes[i] = tolerationOf(t)
	}
	m.match(true, "the", ofNodes, &corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}, func(i int) bool {
		return resourceclaim.ToleratesTaint(tolerations[i], native)
	})
	return m
}

// match sets the first toleration that matches a taint, or else why those of its key do not.
// Comparing is true if comparison operators are honoured.
func (m *Taint) match(comparing bool, whose string, tolerations []corev1.Toleration, taint *corev1.Taint, tolerates func(i int) bool) {
	for i, t := range tolerations {
		if tolerates(i) {
			m.Tolerated, m.By, m.Near = true, tolerationWords(t), nil
			return
		}
		if t.Key != taint.Key {
			continue
		}
		why := " has another value"
		switch compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt; {
		case t.Effect != "" && t.Effect != taint.Effect:
			why = " is for the effect " + string(t.Effect)
		case compares && !comparing:
			why = " has the operator " + string(t.Operator) + ", which Tollgate does not honour (eviction.comparisonOperators is off)"
		case compares:
			why = " does not hold for the value " + taint.Value
		}
		m.Near = append(m.Near, whose+" toleration "+tolerationWords(t)+why)
	}
}

// repels reports whether a taint keeps new pods off.
func repels(effect corev1.TaintEffect) bool {
	return effect == corev1.TaintEffectNoSchedule || effect == corev1.TaintEffectNoExecute
}

// leaves returns when a pod has to leave because of one taint alone; nil for never.
func (w *World) leaves(alone tracker.Situation) *metav1.Time {
	decision := w.Rules.Decide(w.Now, alone)
	if decision.Verdict != decide.EvictAt {
		return nil
	}
	return cli.TimeOrNone(decision.At)
}

// onNode returns the taints of the node of a pod.
func (w *World) onNode(pod *corev1.Pod, situation *tracker.Situation) []Taint {
	node := named(w.Nodes, pod.Spec.NodeName)
	if node == nil {
		return nil
	}
	var taints []Taint
	for _, taint := range node.Spec.Taints {
		m := match(w.Rules, pod.Spec.Tolerations, &taint)
		m.Source = "node " + node.Name
		at := slices.IndexFunc(situation.Taints, func(t tracker.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
		if at >= 0 {
			m.Leaves = w.leaves(tracker.Situation{Pod: situation.Pod, Taints: situation.Taints[at : at+1]})
		}
		taints = append(taints, m)
	}
	return taints
}
