package safety

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// recovery is after how long evictions are at full pace again.
const recovery = 10 * time.Second

const (
	// lead is after how many seconds the first pod is due: on a busy machine it takes a
	// while until everything is ready for the outage.
	lead = 20
	// ahead is how many seconds before that the outage begins.
	ahead = 8
)

func TestI03AfterAnOutageEvictionsAreAtFullPaceAtOnce(t *testing.T) {
	const key = prefix + "i03"
	limit := pace{perSecond: 50, burst: 50}
	pending := number(t, "TOLLGATE_SAFETY_PENDING", pendingBriefly)
	outage := duration(t, "TOLLGATE_SAFETY_OUTAGE", outageBriefly)
	namespace := namespaceOf(t)
	govern(t, "i03", key, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: int32(limit.perSecond), Burst: int32(limit.burst)}
		spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(2 * pending)), Window: metav1.Duration{Duration: 10 * time.Minute}}
	})
	var pods []*corev1.Pod
	seconds := map[string]int64{}
	for i := range pending {
		pod := podOn(1+i%nodeCount, fmt.Sprintf("pod-%d", i))
		seconds[pod.Name] = lead + int64(i)%(int64(outage/time.Second)-ahead)
		pod.Spec.Tolerations = []corev1.Toleration{{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(seconds[pod.Name]),
		}}
		pods = append(pods, pod)
	}
	created := create(t, namespace, pods...)
	waitReady(t, namespace, pending)
	due := map[string]time.Time{}
	added := taint(t, key, allNodes()...)
	for _, pod := range pods {
		due[pod.Name] = added[pod.Spec.NodeName].Add(time.Duration(seconds[pod.Name]) * time.Second)
	}
	waitMetric(t, float64(pending), "tollgate_evictions_pending")
	pause(t, time.Until(due["pod-0"].Add(-ahead*time.Second)))

	gone, back := withoutAPIServer(t, outage)
	waitAlive(t, namespace, 0, created)
	left := waitDepartures(t, namespace, pending) // Nobody is forgotten, and nobody leaves twice.
	for _, d := range left {
		require.Equal(t, created[d.pod], d.uid)
		require.False(t, d.at.Before(due[d.pod]), "%s left at %s, and was due at %s", d.pod, d.at, due[d.pod])
		require.True(t, d.at.After(gone), "%s left at %s before the outage", d.pod, d.at)
	}
	first, last := left[0].at.Sub(back), left[len(left)-1].at.Sub(back)
	excess := limit.excess(left)
	t.Logf("%d pods left from %s to %s after the API server was back, which takes %s at the pace; ahead of it by at most %.1f pods; an answer took %s, and %d got none",
		pending, first.Round(time.Millisecond), last.Round(time.Millisecond), limit.takes(pending), excess, meanAnswer(left).Round(time.Millisecond), unanswered(left))
	t.Logf("pods that left in each second since then: %v", eachSecond(left, back))
	require.Less(t, last, recovery+time.Duration(float64(limit.takes(pending))*(1+slack)), "full pace after %s", recovery)
	require.Less(t, excess, 1.0, "what was missed is not made good for at once")
	requireFollows(t, namespace)
}

// withoutAPIServer takes the API server away for some time: in the first half it is
// there and answers nothing, in the second it is not there. It returns when it was
// last there, and when it was again.
func withoutAPIServer(t *testing.T, outage time.Duration) (gone, back time.Time) {
	t.Helper()
	t.Cleanup(func() { _ = shared.Signal(controlplane.APIServer, syscall.SIGCONT) })
	gone = time.Now()
	require.NoError(t, shared.Signal(controlplane.APIServer, syscall.SIGSTOP))
	pause(t, outage/2)
	require.NoError(t, shared.Kill(t.Context(), controlplane.APIServer))
	pause(t, outage/2)
	require.NoError(t, shared.Restart(t.Context(), controlplane.APIServer))
	back = time.Now()
	t.Logf("the API server was away for %s", back.Sub(gone).Round(time.Millisecond))
	return gone, back
}

// requireFollows makes sure that Tollgate hears again of what happens: a pod that comes
// only now leaves too.
func requireFollows(t *testing.T, namespace string) {
	t.Helper()
	began := time.Now()
	waitAlive(t, namespace, 0, create(t, namespace, podOn(1, "late")))
	t.Logf("a pod that came after the outage left within %s", time.Since(began).Round(time.Millisecond))
}

// pause lets time pass that a test is about.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// duration returns a span that the environment may set.
func duration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, name)
	require.GreaterOrEqual(t, d, otherwise, name)
	return d
}
