package preview

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	benchNodes = 100
	benchPods  = 10_000
)

// full returns a site with pods of as many workloads as nodes, all of which use a
// device, in fifty namespaces with five PodDisruptionBudgets each. Every second pod
// tolerates the taint for a while.
func full() *site {
	s := newSite(clocktesting.NewFakePassiveClock(noon))
	s.tracker.SetDevicesKnown(true)
	var origins []*tracker.Origin
	for i := range benchNodes {
		n := node("n" + strconv.Itoa(i))
		n.Labels = tracker.LabelsOf(map[string]string{"pool": "banana", corev1.LabelHostname: n.Name})
		s.tracker.SetNode(n, noon)
		origins = append(origins, &tracker.Origin{OwnerKind: "ReplicaSet", Labels: tracker.LabelsOf(map[string]string{
			"app": "app-" + strconv.Itoa(i), "pod-template-hash": "7c5ddbdf54",
		})})
	}
	for i := range 50 {
		for j := range 5 {
			s.tracker.SetBudget(budget("ns-"+strconv.Itoa(i), "b"+strconv.Itoa(j), map[string]string{"app": "app-" + strconv.Itoa(i*j%benchNodes)}))
		}
	}
	for i := range benchPods {
		p, claim := userOf("p"+strconv.Itoa(i), "x"+strconv.Itoa(i/benchNodes))
		p.NodeName = "n" + strconv.Itoa(i%benchNodes)
		p.Namespace = "ns-" + strconv.Itoa(i%50)
		claim.Namespace = p.Namespace
		claim.Devices[0].ID.Pool = p.NodeName
		p.Origin = origins[i/50%benchNodes]
		if i%2 == 0 {
			p.Tolerations = []corev1.Toleration{tolerate(corev1.TaintNodeNotReady, 300), tolerate("k", 300)}
		}
		s.tracker.SetPod(p)
		s.tracker.SetClaim(claim)
	}
	return s
}

// median runs what is measured and reports the median of its times.
func median(b *testing.B, work func()) {
	b.Helper()
	b.ReportAllocs()
	var times []time.Duration
	for b.Loop() {
		begin := time.Now()
		work()
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
}

// BenchmarkPreview measures what a reviewer waits for: what a write would do to 10,000
// pods on 100 nodes, as a sentence, and how many pods other writes have hit.
func BenchmarkPreview(b *testing.B) {
	s := full()
	say := func(changes []tracker.Change, err error, pods int) {
		require.NoError(b, err)
		f := s.view.Forecast(noon, changes)
		require.Len(b, f.Pods, pods)
		require.NotEmpty(b, f.String())
	}
	everything := rule("r", &resourcev1.DeviceTaintSelector{}, deviceTaint("k", 0))

	b.Run("node/pods=100", func(b *testing.B) {
		median(b, func() {
			changes, err := s.view.Node(node("n0"), node("n0", exampleTaint("k", 0)), noon)
			say(changes, err, benchPods/benchNodes)
		})
	})
	b.Run("nodes/pods=10000", func(b *testing.B) {
		give := func(map[string]string) []corev1.Taint { return []corev1.Taint{exampleTaint("k", 0)} }
		median(b, func() {
			changes, err := s.view.Nodes(give, noon)
			say(changes, err, benchPods)
		})
	})
	b.Run("rule/pods=10000", func(b *testing.B) {
		median(b, func() {
			changes, err := s.view.Rule(nil, everything, noon)
			say(changes, err, benchPods)
		})
	})
	b.Run("rule and limit/pods=10000/hit before=10000", func(b *testing.B) {
		hit := full()
		hit.tracker.SetRule(rule("before", &resourcev1.DeviceTaintSelector{}, deviceTaint("k", 0)), noon)
		ledger := NewLedger(&View{Tracker: hit.tracker}, hit.clock)
		median(b, func() {
			changes, err := s.view.Rule(nil, everything, noon)
			say(changes, err, benchPods)
			struck := s.view.Strikes(changes)
			require.Len(b, struck, benchPods)
			require.Equal(b, benchPods, ledger.Others(Query{Window: tenMinutes, Governs: governed}))
		})
	})
}
