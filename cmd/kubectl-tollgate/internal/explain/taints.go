package explain

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/selector"
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

	effect corev1.TaintEffect
}

// match returns a taint of a node with the toleration of a pod that matches it.
func (w *World) match(tolerations []corev1.Toleration, taint *corev1.Taint) Taint {
	m := Taint{Taint: taint.ToString(), effect: taint.Effect}
	if !taint.TimeAdded.IsZero() {
		m.Since = taint.TimeAdded
	}
	for _, t := range tolerations {
		m.add("its", t, taint, w.Rules.ComparisonOperators, w.Rules.Tolerates(&t, taint))
	}
	return m
}

// matchDevice returns a taint of a device with the toleration of an allocation, or of a request,
// that matches it.
func matchDevice(tolerations []resourcev1.DeviceToleration, taint *tracker.Taint) Taint {
	m := Taint{Taint: taint.String(), Source: sourceWords(taint.Author()), Since: cli.TimeOrNone(taint.TimeAdded), effect: taint.Effect}
	native := taint.Native()
	published := resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect)}
	for _, t := range tolerations {
		m.add("the", *selector.FromDevice(&t), &native, true, resourceclaim.ToleratesTaint(t, published))
	}
	return m
}

// add adds a toleration: the first that tolerates the taint counts, or else why those of its key do
// not. Comparing is true if comparison operators are honoured.
func (m *Taint) add(whose string, t corev1.Toleration, taint *corev1.Taint, comparing, tolerates bool) {
	why := " has another value"
	switch compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt; {
	case m.Tolerated:
		return
	case tolerates:
		m.Tolerated, m.By, m.Near = true, tolerationWords(t), nil
		return
	case t.Key != taint.Key:
		return
	case t.Effect != "" && t.Effect != taint.Effect:
		why = " is for the effect " + string(t.Effect)
	case compares && !comparing:
		why = " has the operator " + string(t.Operator) + ", which Tollgate does not honour (eviction.comparisonOperators is off)"
	case compares:
		why = " does not hold for the value " + taint.Value
	}
	m.Near = append(m.Near, whose+" toleration "+tolerationWords(t)+why)
}

// repels reports whether the taint keeps new pods off.
func (m *Taint) repels() bool {
	return !m.Tolerated && (m.effect == corev1.TaintEffectNoSchedule || m.effect == corev1.TaintEffectNoExecute)
}

// onNode returns the taints of the node of a pod.
func (w *World) onNode(situation *tracker.Situation) (taints []Taint) {
	pod := situation.Pod
	node := named(w.Nodes, pod.NodeName)
	if node == nil {
		return nil
	}
	for _, taint := range node.Spec.Taints {
		m := w.match(pod.Tolerations, &taint)
		m.Source = "node " + node.Name
		for _, t := range situation.Taints {
			if t.Key == taint.Key && t.Effect == taint.Effect {
				m.Leaves = cli.TimeOrNone(w.Rules.Decide(w.Now, tracker.Situation{Pod: pod, Taints: []tracker.Taint{t}}).At)
			}
		}
		taints = append(taints, m)
	}
	return taints
}
