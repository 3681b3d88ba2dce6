package evictor

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// defaults are the tolerations that every pod gets from Kubernetes.
var defaults = []corev1.Toleration{
	tolerationFor(corev1.TaintNodeNotReady, 300), tolerationFor(corev1.TaintNodeUnreachable, 300),
}

func BenchmarkDecide(b *testing.B) {
	for name, taint := range map[string]tracker.Taint{
		"tolerated for a while": taintSince(corev1.TaintNodeUnreachable, 0),
		"untolerated":           taintSince("maintenance", 0),
	} {
		b.Run(name, func(b *testing.B) {
			situation := onNode(podSince(0, defaults...), taint)
			b.ReportAllocs()
			for b.Loop() {
				if Decide(noon, situation).Verdict != EvictAt {
					b.Fatal("the pod has to leave")
				}
			}
		})
	}
}

// BenchmarkNodeTainted is from the event of a taint to the decision about every
// pod, for growing numbers of pods.
func BenchmarkNodeTainted(b *testing.B) {
	for _, count := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d pods", count), func(b *testing.B) {
			tr := tracker.New()
			for i := range count {
				pod := podSince(0, defaults...)
				pod.Name = fmt.Sprintf("pod-%06d", i)
				pod.UID = types.UID(pod.Name)
				tr.SetPod(pod)
			}
			taints := []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(noon))}}
			version := 0
			b.ReportAllocs()
			for b.Loop() {
				version++
				node := tracker.Node{Name: "n", UID: "u", ResourceVersion: strconv.Itoa(version), Taints: taints}
				decided := 0
				for _, key := range tr.SetNode(node, noon) {
					situation, _ := tr.Lookup(key)
					if Decide(noon, situation).Verdict == EvictAt {
						decided++
					}
				}
				if decided != count {
					b.Fatalf("%d decided", decided)
				}
				tr.DeleteNode("n", "u")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/pod")
		})
	}
}
