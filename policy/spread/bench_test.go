package spread

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// benchCluster has 5,000 nodes in 10 zones, of which one is tainted, with 10 pods each: a
// tenth of these are in the namespace of the pod, half of them counted.
func benchCluster() *Cluster {
	nodes, pods := make([]Node, 5000), make([]Placed, 0, 50_000)
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		has := labels.Set{corev1.LabelHostname: name, "zone": fmt.Sprint("zone-", i%10)}
		for j := range 15 {
			has[fmt.Sprintf("cloud.example.com/label-%d", j)] = strconv.Itoa(i % (j + 2))
		}
		nodes[i] = Node{Name: name, Labels: has}
		if i%10 == 9 {
			nodes[i].Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
		for j := range 10 {
			p := Placed{Namespace: "other", Node: name, Labels: labels.Set{"app": "web"}}
			if j == 0 {
				p.Namespace, p.Labels = "ns", labels.Set{"app": [2]string{"web", "db"}[i%2]}
			}
			pods = append(pods, p)
		}
	}
	return NewCluster(nodes, pods)
}

func BenchmarkFilter(b *testing.B) {
	cluster := benchCluster()
	bench := func(name string, run func(s *Spreading), p *corev1.Pod) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := Read(p, Options{})
				require.NoError(b, err)
				run(s)
			}
		})
	}
	filter := func(s *Spreading) { s.Filter(cluster) }
	bench("zone", filter, pod(by("zone")))
	bench("zone and host", filter, pod(by("zone"), by(corev1.LabelHostname)))
	bench("zone and host side by side", func(s *Spreading) { s.SideBySide(cluster) }, pod(by("zone"), by(corev1.LabelHostname)))
	bench("wedges by zone and host", func(s *Spreading) { s.Wedges(cluster.Nodes()) }, pod(by("zone"), by(corev1.LabelHostname)))
	bench("wedges by zone and host of what requires nodes", func(s *Spreading) { s.Wedges(cluster.Nodes()) }, pod(by("zone"), by(corev1.LabelHostname),
		selectingNodes("cloud.example.com/label-0=1"), requiring(corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-1", "zone-3", "zone-9"}},
				{Key: "cloud.example.com/label-3", Operator: corev1.NodeSelectorOpExists},
			},
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-0001"}}},
		})))
}
