package evictor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

// trackedPod returns a pod as the tracker holds it.
func trackedPod(change func(*corev1.Pod)) tracker.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", Generation: 3},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	if change != nil {
		change(pod)
	}
	return tracker.PodOf(pod)
}

func disrupted(status corev1.ConditionStatus, reason, message string, generation int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		}}
	}
}

func TestMarkPatch(t *testing.T) {
	t.Parallel()
	const head = `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[{"type":"DisruptionTarget","status":"True",` +
		`"reason":"DeletionByTaintManager","message":"Taint manager: deleting due to NoExecute taint","observedGeneration":3`
	for _, test := range []struct {
		name   string
		before func(*corev1.Pod)
		marked bool
		want   string
	}{
		{"NE-20 a pod without the condition gets it whole", nil, false, head + `,"lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`},
		{"NE-20 one that has it is left as it is", disrupted("True", nodeMark.reason, nodeMark.message, 3), true, head + `}]}}`},
		{"NE-20 one that had it for another generation keeps the time since when", disrupted("True", nodeMark.reason, nodeMark.message, 2), false, head + `}]}}`},
		{"NE-20 DE-40 one that has it from somebody else is overwritten", disrupted("True", "PreemptionByScheduler", "x", 3), false, head + `}]}}`},
		{"NE-20 another message is not ours", disrupted("True", nodeMark.reason, "x", 3), false, head + `}]}}`},
		{"NE-20 one on which it is false gets a new time", disrupted("False", nodeMark.reason, nodeMark.message, 3), false, head + `,"lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := trackedPod(test.before)
			require.Equal(t, test.marked, marked(pod, tracker.SourceNode))
			body, err := json.Marshal(markPatch(pod, tracker.SourceNode, metav1.NewTime(noon)))
			require.NoError(t, err)
			require.Equal(t, test.want, string(body))
		})
	}
}

func TestDeleter(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(noon)

	t.Run("NE-17 it marks and deletes with two requests, each for that version of that pod", func(t *testing.T) {
		t.Parallel()
		client := fake.NewClientset()
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "8"}}, nil
		})
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		done, err := (&deleter{pods: client.CoreV1(), clock: clock}).evict(t.Context(), trackedPod(nil), tracker.SourceNode, true)
		require.NoError(t, err)
		require.Equal(t, Evicted, done.outcome)
		require.Equal(t, "8", done.answer.ResourceVersion)
		require.Len(t, client.Actions(), 2)
		patched := client.Actions()[0].(clienttesting.PatchActionImpl)
		require.Equal(t, types.StrategicMergePatchType, patched.PatchType)
		require.Equal(t, "status", patched.Subresource)
		deleted := client.Actions()[1].(clienttesting.DeleteActionImpl)
		require.Equal(t, &metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("8")}, deleted.DeleteOptions.Preconditions)
		require.Nil(t, deleted.DeleteOptions.GracePeriodSeconds, "the pod's own grace period holds")
	})

	t.Run("a pod that is marked already is deleted with one request for the version that was decided on", func(t *testing.T) {
		t.Parallel()
		client := fake.NewClientset()
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		pod := trackedPod(disrupted("True", nodeMark.reason, nodeMark.message, 3))
		done, err := (&deleter{pods: client.CoreV1(), clock: clock}).evict(t.Context(), pod, tracker.SourceNode, true)
		require.NoError(t, err)
		require.Equal(t, Evicted, done.outcome)
		require.Len(t, client.Actions(), 1)
		deleted := client.Actions()[0].(clienttesting.DeleteActionImpl)
		require.Equal(t, &metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("7")}, deleted.DeleteOptions.Preconditions)
	})

	t.Run("NE-17 a pod that is gone is gone, with no event and no retry", func(t *testing.T) {
		t.Parallel()
		d := &deleter{pods: fake.NewClientset().CoreV1(), clock: clock}
		done, err := d.evict(t.Context(), trackedPod(nil), tracker.SourceNode, true)
		require.NoError(t, err)
		require.Equal(t, attempt{outcome: Gone}, done)
		done, err = d.evict(t.Context(), trackedPod(nil), tracker.SourceNode, false)
		require.NoError(t, err)
		require.Equal(t, attempt{outcome: Gone, sent: true}, done)
	})
}

func TestOutcomeStrings(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unfinished", Unfinished.String())
	require.Equal(t, "evicted", Evicted.String())
	require.Equal(t, "gone", Gone.String())
	require.Equal(t, "terminating", Terminating.String())
}

func TestEventsNE21(t *testing.T) {
	t.Parallel()
	t.Run("NE-21 NE-22 an event names the pod with its UID, and is written once the deletion was accepted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.api.setFaults(first(3, is("delete pods"), errDown), nil)
			w.start()
			w.pass(5 * time.Millisecond)
			require.Empty(w.t, w.recorder.took())
			w.pass(time.Minute)
			require.Equal(w.t, []string{
				"Pod default/a Normal TaintManagerEviction: Marking for deletion Pod default/a",
				"Node n Normal TaintManagerEviction: Evicted 1 pod because of NoExecute taint gpu:NoExecute",
			}, w.recorder.took())
			require.Equal(w.t, []corev1.ObjectReference{
				{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "a-uid"},
				{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n-uid"},
			}, w.recorder.refs)
		})
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("NE-23 NE-24 deletions and their lateness, in seconds, have the names that Kubernetes gave them", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		metrics := NewMetrics(registry)
		metrics.ended(tracker.SourceNode, Evicted, 1500*time.Millisecond)
		metrics.ended(tracker.SourceNode, Evicted, -time.Second)
		metrics.ended(tracker.SourceNode, Gone, time.Hour)
		metrics.ended(tracker.SourceNode, Terminating, time.Hour)
		want := `
# HELP taint_eviction_controller_pod_deletion_duration_seconds Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.
# TYPE taint_eviction_controller_pod_deletion_duration_seconds histogram
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.005"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.025"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.1"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.5"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="1"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="2.5"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="10"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="30"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="60"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="120"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="180"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="240"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="+Inf"} 2
taint_eviction_controller_pod_deletion_duration_seconds_sum 1.5
taint_eviction_controller_pod_deletion_duration_seconds_count 2
# HELP taint_eviction_controller_pod_deletions_total Total number of Pods deleted by TaintEvictionController since its start.
# TYPE taint_eviction_controller_pod_deletions_total counter
taint_eviction_controller_pod_deletions_total 2
# HELP tollgate_evictions_total Evictions that came to an end, by the kind of object that carries the taint, the method, and the outcome: evicted, or overtaken because the pod was gone or terminating already.
# TYPE tollgate_evictions_total counter
tollgate_evictions_total{method="delete",outcome="evicted",source="node"} 2
tollgate_evictions_total{method="delete",outcome="gone",source="node"} 1
tollgate_evictions_total{method="delete",outcome="terminating",source="node"} 1
`
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want),
			"taint_eviction_controller_pod_deletion_duration_seconds", "taint_eviction_controller_pod_deletions_total", "tollgate_evictions_total"))
	})

	t.Run("NE-24 lateness is counted from the moment the pod had to leave", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.api.setFaults(first(1, is("delete pods"), errBusy), nil)
			w.start()
			w.pass(time.Hour)
			families, err := w.registry.Gather()
			require.NoError(w.t, err)
			for _, family := range families {
				if family.GetName() == "taint_eviction_controller_pod_deletion_duration_seconds" {
					require.InDelta(w.t, 7, family.GetMetric()[0].GetHistogram().GetSampleSum(), 0.01)
				}
			}
		})
	})

	t.Run("they are without fault for promlint", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		metrics := NewMetrics(registry)
		metrics.ended(tracker.SourceNode, Evicted, 0)
		metrics.retries.WithLabelValues(string(Denied)).Inc()
		metrics.oddTimes.WithLabelValues(directionPast).Inc()
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}
