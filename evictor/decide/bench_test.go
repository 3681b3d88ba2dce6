package decide

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
				if byDefault(noon, situation).Verdict != EvictAt {
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
					if byDefault(noon, situation).Verdict == EvictAt {
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

// BenchmarkDecideDevice is what a decision costs for a pod with devices.
func BenchmarkDecideDevice(b *testing.B) {
	for name, situation := range map[string]tracker.Situation{
		"one device, untolerated":           holding(held(gpu0, "c", nil, ruleTaint("r", "broken", 0))),
		"one device, tolerated for a while": holding(held(gpu0, "c", tolerated("broken", 60), ruleTaint("r", "broken", 0))),
		"eight devices of one rule": holding(
			held(gpu0, "c", nil, ruleTaint("r", "broken", 0)), held(gpu1, "c", nil, ruleTaint("r", "broken", 0)),
			held(gpu0, "d", nil, ruleTaint("r", "broken", 0)), held(gpu1, "d", nil, ruleTaint("r", "broken", 0)),
			held(gpu0, "e", nil, ruleTaint("r", "broken", 0)), held(gpu1, "e", nil, ruleTaint("r", "broken", 0)),
			held(gpu0, "f", nil, ruleTaint("r", "broken", 0)), held(gpu1, "f", nil, ruleTaint("r", "broken", 0)),
		),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if byDefault(noon, situation).Verdict != EvictAt {
					b.Fatal("the pod has to leave")
				}
			}
		})
	}
}

// BenchmarkRuleTainted is from the event of a rule to the decision about every pod,
// for growing numbers of pods, each with a device of its own (PE1).
func BenchmarkRuleTainted(b *testing.B) {
	for _, count := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d pods", count), func(b *testing.B) {
			tr := clusterOfDevices(count)
			rule := tracker.RuleOf(&resourcev1.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r-rule-uid", Generation: 1},
				Spec: resourcev1.DeviceTaintRuleSpec{
					DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(driverX)},
					Taint: resourcev1.DeviceTaint{
						Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(noon)),
					},
				},
			})
			version := 0
			b.ReportAllocs()
			for b.Loop() {
				version++
				rule.ResourceVersion = strconv.Itoa(version)
				decided := 0
				for _, key := range tr.SetRule(rule, noon) {
					situation, _ := tr.Lookup(key)
					if byDefault(noon, situation).Verdict == EvictAt {
						decided++
					}
				}
				if decided != count {
					b.Fatalf("%d decided", decided)
				}
				tr.DeleteRule(rule.Name, rule.UID)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/pod")
		})
	}
}

// clusterOfDevices returns a tracker with that many pods, each with a claim to a
// device that is published in a pool of 64.
func clusterOfDevices(count int) *tracker.Tracker {
	tr := tracker.New()
	for i := range count {
		name := fmt.Sprintf("pod-%06d", i)
		claim := newClaim(name, fmt.Sprintf("gpu-%d", i%64), nil, name)
		claim.Status.Allocation.Devices.Results[0].Pool = fmt.Sprintf("node-%d", i/64)
		tr.SetClaim(tracker.ClaimOf(claim))
		tr.SetPod(tracker.PodOf(using(newPod(name, fmt.Sprintf("node-%d", i/64)), name)))
	}
	for pool := range count/64 + 1 {
		slice := tracker.Slice{Name: fmt.Sprintf("slice-%d", pool), UID: "u", Driver: driverX, Pool: fmt.Sprintf("node-%d", pool)}
		for i := range 64 {
			slice.Devices = append(slice.Devices, tracker.Device{Name: fmt.Sprintf("gpu-%d", i)})
		}
		tr.SetSlice(slice, noon)
	}
	tr.SetDevicesKnown(true)
	return tr
}
