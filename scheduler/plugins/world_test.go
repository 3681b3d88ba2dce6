package plugins

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// spreadWorld is a cluster and a pod that is to be scheduled.
type spreadWorld struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	pod   *corev1.Pod
	// compares says that tolerations compare numbers.
	compares bool
}

// spreadDice make worlds.
type spreadDice struct{ *rand.Rand }

func pick[T any](d spreadDice, of ...T) T { return of[d.IntN(len(of))] }

// oneIn is true once in n times.
func (d spreadDice) oneIn(n int) bool { return d.IntN(n) == 0 }

func spreadRandomWorld(random *rand.Rand) *spreadWorld {
	d := spreadDice{random}
	w := &spreadWorld{compares: d.oneIn(2)}
	for i := range 1 + d.IntN(12) {
		w.nodes = append(w.nodes, d.node("node-"+strconv.Itoa(i)))
	}
	for i := range d.IntN(40) {
		w.pods = append(w.pods, d.placed("placed-"+strconv.Itoa(i), w.nodes))
	}
	w.pod = d.pod()
	if d.oneIn(8) {
		w.pod.Spec.TopologySpreadConstraints = nil
	}
	return w
}

func (d spreadDice) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if !d.oneIn(6) {
		n.Labels[corev1.LabelHostname] = name
	}
	if !d.oneIn(6) {
		n.Labels[corev1.LabelTopologyZone] = pick(d, "a", "b", "c", "d", "")
	}
	if !d.oneIn(6) {
		n.Labels["rack"] = pick(d, "1", "2", "3")
	}
	if d.oneIn(2) {
		n.Labels["disk"] = pick(d, "ssd", "hdd")
	}
	if d.oneIn(2) {
		n.Labels["cores"] = pick(d, "4", "8", "many")
	}
	for _, key := range []string{"gpu", "level", corev1.TaintNodeUnschedulable} {
		if d.oneIn(4) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: key, Value: pick(d, "", "5", "x"),
				Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
			})
		}
	}
	n.Spec.Unschedulable = d.oneIn(8) // Without its taint that is nothing to spread.
	return n
}

func (d spreadDice) podLabels() map[string]string {
	l := map[string]string{}
	if !d.oneIn(8) {
		l["app"] = pick(d, "a", "b")
	}
	if d.oneIn(2) {
		l["hash"] = pick(d, "1", "2")
	}
	return l
}

func (d spreadDice) placed(name string, nodes []*corev1.Node) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: d.podLabels()},
		Spec:       corev1.PodSpec{NodeName: pick(d, nodes...).Name},
	}
	if d.oneIn(6) {
		p.Namespace = "other"
	}
	if d.oneIn(6) {
		p.DeletionTimestamp = &metav1.Time{}
	}
	return p
}

func (d spreadDice) pod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", UID: "pod", Labels: d.podLabels()}}
	p.Spec.TopologySpreadConstraints = d.constraints()
	for range d.IntN(3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, d.toleration())
	}
	if d.oneIn(4) {
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if d.oneIn(3) {
		selector := &corev1.NodeSelector{}
		for range d.IntN(3) {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, d.term())
		}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
	}
	return p
}

func (d spreadDice) term() corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range d.IntN(3) {
		t.MatchExpressions = append(t.MatchExpressions, pick(d,
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpExists},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist},
			corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
			corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
			corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
			corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpLt, Values: []string{"8"}},
			corev1.NodeSelectorRequirement{Key: "cores", Operator: "Like", Values: []string{"8"}}, // cannot be read
		))
	}
	if d.oneIn(3) {
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
			Key: pick(d, metav1.ObjectNameField, metav1.ObjectNameField, "spec.unschedulable"), Values: []string{pick(d, "node-0", "node-1", "")},
			Operator: pick(d, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn),
		})
	}
	return t
}

func (d spreadDice) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key:    pick(d, "gpu", "level", corev1.TaintNodeUnschedulable),
		Effect: pick(d, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
	}
	switch d.IntN(5) {
	case 0:
		t.Operator, t.Value = pick(d, "", corev1.TolerationOpEqual), pick(d, "", "5", "x")
	case 1:
		t.Operator, t.Value = pick(d, corev1.TolerationOpLt, corev1.TolerationOpGt), pick(d, "4", "6")
	case 2:
		t.Key, t.Operator = pick(d, "", "gpu"), corev1.TolerationOpExists
	default:
		t.Operator = corev1.TolerationOpExists
	}
	if t.Effect == corev1.TaintEffectNoExecute && d.oneIn(2) {
		t.TolerationSeconds = new(int64(30))
	}
	return t
}

// constraints returns some that the API server takes, with what change makes of them.
func (d spreadDice) constraints() []corev1.TopologySpreadConstraint {
	var list []corev1.TopologySpreadConstraint
	for range 1 + d.IntN(4) {
		c := corev1.TopologySpreadConstraint{
			TopologyKey:        pick(d, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, "rack"),
			WhenUnsatisfiable:  pick(d, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway),
			MaxSkew:            1 + d.Int32N(3),
			LabelSelector:      d.selector(),
			NodeTaintsPolicy:   d.policy(),
			NodeAffinityPolicy: d.policy(),
		}
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && d.oneIn(3) {
			c.MinDomains = new(1 + d.Int32N(5))
		}
		if c.LabelSelector != nil && d.oneIn(3) {
			c.MatchLabelKeys = []string{pick(d, "hash", "app", "missing")}
		}
		if !slices.ContainsFunc(list, func(other corev1.TopologySpreadConstraint) bool {
			return other.TopologyKey == c.TopologyKey && other.WhenUnsatisfiable == c.WhenUnsatisfiable
		}) {
			list = append(list, c)
		}
	}
	return list
}

func (d spreadDice) policy() *corev1.NodeInclusionPolicy {
	return pick(d, nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore))
}

func (d spreadDice) selector() *metav1.LabelSelector {
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "hash", Operator: pick(d, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
		}}}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(d, "a", "a", "b")}}
	}
}

// String says what tells worlds apart, for one that fails.
func (w *spreadWorld) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "constraints %+v\ntolerations %+v\nselector %v affinity %+v labels %v\n",
		w.pod.Spec.TopologySpreadConstraints, w.pod.Spec.Tolerations, w.pod.Spec.NodeSelector, w.pod.Spec.Affinity, w.pod.Labels)
	for _, n := range w.nodes {
		fmt.Fprintf(&text, "node %s %v %v\n", n.Name, n.Labels, n.Spec.Taints)
	}
	for _, p := range w.pods {
		fmt.Fprintf(&text, "pod %s/%s on %s %v terminating %t\n", p.Namespace, p.Name, p.Spec.NodeName, p.Labels, p.DeletionTimestamp != nil)
	}
	return text.String()
}
