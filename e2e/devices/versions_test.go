package devices

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// TestKilledAndServedOtherVersions has a control plane of its own: Tollgate is
// killed, and the API server comes back with other versions of the API, or without
// it, while Tollgate runs.
func TestKilledAndServedOtherVersions(t *testing.T) {
	t.Parallel()
	p, err := startPlane(t.Context(), "devices-versions", t.TempDir(), brief)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.cp.Stop(context.WithoutCancel(t.Context()))) })

	t.Run("DE-54 DE-56 killed while evictions wait", func(t *testing.T) { killedWhileEvictionsWait(t, p) })
	t.Run("VS-02 rules are served as v1beta2 alone", func(t *testing.T) {
		p.serve(t, "--runtime-config=resource.k8s.io/v1/devicetaintrules=false,resource.k8s.io/v1beta2/devicetaintrules=true")
		rulesEvict(t, p, resourcev1beta2.SchemeGroupVersion.Version)
	})
	t.Run("VS-02 rules are served as v1alpha3 alone", func(t *testing.T) {
		p.serve(t, "--runtime-config=resource.k8s.io/v1/devicetaintrules=false,resource.k8s.io/v1alpha3/devicetaintrules=true")
		rulesEvict(t, p, resourcev1alpha3.SchemeGroupVersion.Version)
	})
	t.Run("VS-01 E12 rules are not served", func(t *testing.T) {
		p.serve(t, "--feature-gates=DRADeviceTaintRules=false", "--runtime-config=resource.k8s.io/v1/devicetaintrules=false")
		slicesEvict(t, p)
		nodesEvict(t, p)
		p.requireUnservedSaid(t, 1)
		require.NoError(t, p.tollgate.Terminate(t.Context()))
		require.NoError(t, p.tollgate.Start(t.Context()))
		slicesEvict(t, p)
		nodesEvict(t, p)
		p.requireUnservedSaid(t, 2)
	})
}

// serve starts the API server anew with some arguments.
func (p *plane) serve(t *testing.T, args ...string) {
	t.Helper()
	require.NoError(t, p.cp.RestartWith(t.Context(), controlplane.APIServer, append(args, p.auditArgs...)...))
}

// killedWhileEvictionsWait shows that Tollgate goes on where it was.
func killedWhileEvictionsWait(t *testing.T, p *plane) {
	t.Helper()
	const (
		pods = 60
		// What comes between the taint and the end of Tollgate has until the first is due.
		first = 40
		last  = 47
	)
	s := newSite(t, p)
	s.publish(t, "before", dra.Device("before"))
	s.place(t, use{pod: "before", claim: "before", pool: "before", device: "before"})
	before := s.rule(t, "before", "before", noExecute)
	var leave []use
	var devices []resourcev1.Device
	seconds := map[string]int64{}
	for i := range pods {
		name := fmt.Sprintf("leave-%d", i)
		seconds[name] = first + int64(i)%(last-first+1)
		leave = append(leave, use{
			pod: name, claim: name, pool: "pool", device: name,
			tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, seconds[name])},
		})
		devices = append(devices, dra.Device(name))
	}
	s.publish(t, "pool", append(devices, dra.Device("stay"))...)
	staying := s.place(t, use{pod: "stay", claim: "stay", pool: "pool", device: "stay", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}})
	s.place(t, leave...)
	const evictedOne = "False Completed: 1 pod evicted so far."
	s.waitCondition(t, before.Name, inProgress, evictedOne)
	// What the status says first it says for ten seconds.
	s.waitForeseen(t, "pool", pods)
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitCondition(t, rule.Name, inProgress, "True PodsPendingEviction: 60 pods need to be evicted in 1 namespace.")

	require.NoError(t, p.tollgate.Kill(t.Context()))
	require.Len(t, s.deletions(t), 1, "the first one is not due yet")
	require.NoError(t, p.tollgate.Start(t.Context()))
	s.led++

	s.waitAlive(t, staying)
	deleted := s.waitDeletions(t, 1+pods)
	var latest time.Duration
	for name, tolerated := range seconds {
		late := deleted[name].Sub(rule.Spec.Taint.TimeAdded.Add(time.Duration(tolerated) * time.Second))
		require.GreaterOrEqual(t, late, time.Duration(0), "%s left early", name)
		latest = max(latest, late)
	}
	t.Logf("none early, the latest %s late", latest.Round(time.Millisecond))
	require.Less(t, latest, slack)
	p.waitMetric(t, 0, "tollgate_evictions_pending")
	if p.terms(t) == s.led {
		// Each deletion since the start is counted, and no other.
		p.waitMetric(t, pods, deletionsTotal)
		p.waitMetric(t, pods, deletionsSeconds)
	}

	// DE-73: that it was started anew does not show. A change of the rules has their
	// conditions looked at now.
	for _, name := range []string{before.Name, rule.Name} {
		s.editRule(t, name, func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Value = "again" })
	}
	require.Equal(t, evictedOne, s.waitCondition(t, before.Name, inProgress, "False "))
	s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), pods, "leave-")
	forbidden, err := p.logLines("is forbidden")
	require.NoError(t, err)
	require.Zero(t, forbidden, "it has the rights that it needs")
}

// rulesEvict shows that rules of a version evict and are told so.
func rulesEvict(t *testing.T, p *plane, version string) {
	t.Helper()
	s := newSite(t, p)
	s.version = version
	s.publish(t, "pool", dra.Device("a"), dra.Device("b"))
	pods := s.place(t,
		use{pod: "a", claim: "a", pool: "pool", device: "a"},
		use{pod: "b", claim: "b", pool: "pool", device: "b", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}},
	)
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitAlive(t, map[string]*corev1.Pod{"b": pods["b"]})
	said := s.waitCondition(t, rule.Name, inProgress, "False ")
	// The API server has just been started anew: the answer to the deletion may have been
	// lost with the lease, and is nobody's then.
	s.requireCompleted(t, said, 1)
}

// slicesEvict shows that taints in slices evict.
func slicesEvict(t *testing.T, p *plane) {
	t.Helper()
	s := newSite(t, p)
	s.publish(t, "pool", tainted("a"), dra.Device("b"))
	pods := s.place(t,
		use{pod: "a", claim: "a", pool: "pool", device: "a"},
		use{pod: "b", claim: "b", pool: "pool", device: "b"},
	)
	s.waitAlive(t, map[string]*corev1.Pod{"b": pods["b"]})
}

// nodesEvict shows that taints of nodes evict.
func nodesEvict(t *testing.T, p *plane) {
	t.Helper()
	s := newNamespace(t, p)
	pod := dra.Pod("a")
	pod.Spec.NodeName = controlplane.NodeName(1)
	_, err := s.client.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	patch := func(taints string) {
		_, err := s.client.CoreV1().Nodes().Patch(t.Context(), pod.Spec.NodeName, types.StrategicMergePatchType,
			[]byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	patch(`[{"key":"` + key + `","effect":"NoExecute"}]`)
	s.waitAlive(t, nil)
	patch("null")
}

// requireUnservedSaid fails unless Tollgate has said a number of times, once for
// each start, that rules are not served.
func (p *plane) requireUnservedSaid(t *testing.T, times int) {
	t.Helper()
	words := []string{`"not served by the API server"`, `"devicetaintrules.resource.k8s.io"`}
	eventually(t, "it is said", func(context.Context) error {
		lines, err := p.logLines(words...)
		if err == nil && lines < times {
			err = fmt.Errorf("it is said %d times", lines)
		}
		return err
	})
	lines, err := p.logLines(words...)
	require.NoError(t, err)
	require.Equal(t, times, lines)
}
