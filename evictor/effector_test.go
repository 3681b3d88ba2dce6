package evictor

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
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

func TestDeviceMarkPatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		before func(*corev1.Pod)
		marked bool
		tail   string
	}{
		{"DE-39 DE-40 DE-41 a pod without the condition gets it whole, with the generation", nil, false, `,"lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`},
		{"DE-41 one that has it is left as it is", disrupted("True", deviceMark.reason, deviceMark.message, 3), true, `}]}}`},
		{"DE-40 one that has it because of its node is overwritten and keeps the time since when", disrupted("True", nodeMark.reason, nodeMark.message, 3), false, `}]}}`},
		{"DE-40 one that has it from somebody else likewise", disrupted("True", "PreemptionByScheduler", "x", 3), false, `}]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pod := trackedPod(test.before)
			for _, cause := range []tracker.SourceKind{tracker.SourceSlice, tracker.SourceRule} {
				require.Equal(t, test.marked, marked(pod, cause))
				body, err := json.Marshal(markPatch(pod, cause, metav1.NewTime(noon)))
				require.NoError(t, err)
				require.Equal(t, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[{"type":"DisruptionTarget","status":"True",`+
					`"reason":"DeletionByDeviceTaintManager","message":"Device Taint manager: deleting due to NoExecute taint","observedGeneration":3`+test.tail, string(body))
			}
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
		done, err := (&deleter{pods: client.CoreV1(), clock: clock}).evict(t.Context(), order{pod: trackedPod(nil), cause: tracker.SourceNode, mark: true})
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
		done, err := (&deleter{pods: client.CoreV1(), clock: clock}).evict(t.Context(), order{pod: pod, cause: tracker.SourceNode, mark: true})
		require.NoError(t, err)
		require.Equal(t, Evicted, done.outcome)
		require.Len(t, client.Actions(), 1)
		deleted := client.Actions()[0].(clienttesting.DeleteActionImpl)
		require.Equal(t, &metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("7")}, deleted.DeleteOptions.Preconditions)
	})

	t.Run("DE-13 DE-38 for a device it is the same, by a plain deletion", func(t *testing.T) {
		t.Parallel()
		client := fake.NewClientset()
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "8"}}, nil
		})
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		done, err := (&deleter{pods: client.CoreV1(), clock: clock}).evict(t.Context(), order{pod: trackedPod(nil), cause: tracker.SourceRule, mark: true})
		require.NoError(t, err)
		require.Equal(t, Evicted, done.outcome)
		require.Len(t, client.Actions(), 2)
		require.Contains(t, string(client.Actions()[0].(clienttesting.PatchActionImpl).Patch), "DeletionByDeviceTaintManager")
		deleted := client.Actions()[1].(clienttesting.DeleteActionImpl)
		require.Equal(t, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("8")}}, deleted.DeleteOptions)
	})

	t.Run("NE-17 a pod that is gone is gone, with no event and no retry", func(t *testing.T) {
		t.Parallel()
		d := &deleter{pods: fake.NewClientset().CoreV1(), clock: clock}
		done, err := d.evict(t.Context(), order{pod: trackedPod(nil), cause: tracker.SourceNode, mark: true})
		require.NoError(t, err)
		require.Equal(t, attempt{outcome: Gone}, done)
		done, err = d.evict(t.Context(), order{pod: trackedPod(nil), cause: tracker.SourceNode})
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
				"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
			}, w.recorder.took())
			require.Equal(w.t, []corev1.ObjectReference{
				{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "a-uid"},
				{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n-uid", FieldPath: "spec{gpu:NoExecute}"},
			}, w.recorder.refs)
			require.Equal(w.t, []map[string]string{
				{"tollgate.dev/evicted-because": "taint gpu:NoExecute of Node n"}, // on the pod
				{"tollgate.dev/evicted-because": "taint gpu:NoExecute of Node n"}, // in sum on the node
			}, w.recorder.annotations)
		})
	})
	t.Run("NE-21 DE-42 what an event on a pod leaves unsaid names the object that somebody wrote", func(t *testing.T) {
		t.Parallel()
		taint := tracker.Taint{Key: "hot", Value: "1", Effect: corev1.TaintEffectNoExecute, Source: tracker.Source{Kind: tracker.SourceRule, Name: "p-1"}}
		used := device.ID{Driver: "d", Pool: "p", Name: "0"}
		require.Equal(t, "taint hot=1:NoExecute of DeviceTaintRule p-1, device d/p/0", whatFor(&decide.Reason{Taint: taint, Device: used}))
		taint.Patch = tracker.PatchRef{Name: "p"}
		require.Equal(t, "taint hot=1:NoExecute of ResourceSlicePatch p, device d/p/0", whatFor(&decide.Reason{Taint: taint, Device: used}))
	})
}
