package spread

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	honor  = corev1.NodeInclusionPolicyHonor
	ignore = corev1.NodeInclusionPolicyIgnore
)

// node returns a node with labels, such as "zone=a,rack=1", and taints, such as
// "gpu=a:NoSchedule".
func node(name, labelled string, taints ...string) Node {
	n := Node{Name: name, Labels: labelsOf(labelled)}
	for _, text := range taints {
		key, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(key, "=")
		n.Taints = append(n.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return n
}

func labelsOf(text string) labels.Set {
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		panic(err)
	}
	return set
}

// on returns n pods with app=web in the namespace of the pod.
func on(node string, n int) []Placed {
	pods := make([]Placed, n)
	for i := range pods {
		pods[i] = Placed{Namespace: "ns", Node: node, Labels: labels.Set{"app": "web"}}
	}
	return pods
}

// pod returns a pod with app=web and what changes make of it.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", Labels: map[string]string{"app": "web"}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

// by adds a constraint with DoNotSchedule that counts pods with app=web, and what changes
// make of it.
func by(key string, changes ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}
		for _, change := range changes {
			change(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func taintsPolicy(policy corev1.NodeInclusionPolicy) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &policy }
}

func affinityPolicy(policy corev1.NodeInclusionPolicy) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy = &policy }
}

func maxSkew(n int32) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = n }
}

func minDomains(n int32) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n }
}

func selecting(selector *metav1.LabelSelector) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = selector }
}

func labelKeys(keys ...string) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = keys }
}

func softly(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

func tolerating(tolerations ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, tolerations...) }
}

func exists(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
}

func selectingNodes(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = labelsOf(text) }
}

// requiring adds a term of required node affinity.
func requiring(term corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{},
			}}
		}
		required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
}

func read(t *testing.T, p *corev1.Pod) *Spreading {
	t.Helper()
	s, err := Read(p, Options{})
	require.NoError(t, err)
	return s
}

// told returns a count on one line: the pods of each domain, and the global minimum.
func told(c *Count) string {
	words := make([]string, 0, len(c.Domains)+1)
	for _, d := range c.Domains {
		words = append(words, fmt.Sprintf("%s:%d", d.Value, d.Pods))
	}
	return strings.Join(append(words, fmt.Sprintf("min:%d", c.Minimum())), " ")
}

// allowed returns the names of the nodes that pass.
func allowed(c *Cluster, f *Filtered) string {
	var names []string
	for i, v := range f.Verdicts {
		if v.Code() == Success {
			names = append(names, c.Nodes()[i].Name)
		}
	}
	return strings.Join(names, " ")
}
