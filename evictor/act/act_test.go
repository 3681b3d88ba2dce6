package act

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// noon is when pods are marked.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

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

// holds is a decision that is to be carried out.
func holds() error { return nil }

func holdsLease() bool { return true }

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
			require.JSONEq(t, test.want, string(body))
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
				require.JSONEq(t, `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[{"type":"DisruptionTarget","status":"True",`+
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
		done, err := New(client, clock, holdsLease).Evict(t.Context(), Order{Pod: trackedPod(nil), Cause: tracker.SourceNode, Mark: v1alpha1.EvictionMarkBefore, Holds: holds})
		require.NoError(t, err)
		require.Equal(t, Evicted, done.Outcome)
		require.Equal(t, "8", done.Answer.ResourceVersion)
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
		done, err := New(client, clock, holdsLease).Evict(t.Context(), Order{Pod: pod, Cause: tracker.SourceNode, Mark: v1alpha1.EvictionMarkBefore, Holds: holds})
		require.NoError(t, err)
		require.Equal(t, Evicted, done.Outcome)
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
		done, err := New(client, clock, holdsLease).Evict(t.Context(), Order{Pod: trackedPod(nil), Cause: tracker.SourceRule, Mark: v1alpha1.EvictionMarkBefore, Holds: holds})
		require.NoError(t, err)
		require.Equal(t, Evicted, done.Outcome)
		require.Len(t, client.Actions(), 2)
		require.Contains(t, string(client.Actions()[0].(clienttesting.PatchActionImpl).Patch), "DeletionByDeviceTaintManager")
		deleted := client.Actions()[1].(clienttesting.DeleteActionImpl)
		require.Equal(t, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("u")), ResourceVersion: new("8")}}, deleted.DeleteOptions)
	})

	t.Run("NE-17 a pod that is gone is gone, with no event and no retry", func(t *testing.T) {
		t.Parallel()
		d := New(fake.NewClientset(), clock, holdsLease)
		done, err := d.Evict(t.Context(), Order{Pod: trackedPod(nil), Cause: tracker.SourceNode, Mark: v1alpha1.EvictionMarkBefore, Holds: holds})
		require.NoError(t, err)
		require.Equal(t, Attempt{Outcome: Gone}, done)
		done, err = d.Evict(t.Context(), Order{Pod: trackedPod(nil), Cause: tracker.SourceNode, Holds: holds})
		require.NoError(t, err)
		require.Equal(t, Attempt{Outcome: Gone, Sent: true}, done)
	})
}

// TestARequestThatWasNeverSentDidNothing asks a real client, whose limiter does not wait
// beyond the end of an attempt.
func TestARequestThatWasNeverSentDidNothing(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	t.Cleanup(server.Close)
	limited, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: 0.001, Burst: 1})
	require.NoError(t, err)
	for _, how := range []struct {
		name string
		by   Method
	}{
		{"a deletion", Delete},
		{"an eviction", Evict},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		before := served.Load()
		done, err := New(limited, clock.RealClock{}, nil).Evict(ctx, Order{Pod: trackedPod(nil), Method: how.by, Holds: holds})
		cancel()
		sent := served.Load() > before
		require.Equal(t, sent, done.MayHaveWorked(err), "%s: %v", how.name, err)
		require.Equal(t, how.name == "a deletion", sent, "only the first gets the token")
	}
}

func TestL2ABudgetThatOthersWriteIsAConflict(t *testing.T) {
	t.Parallel()
	contended := apierrors.NewTimeoutError(`couldn't update PodDisruptionBudget "web" due to conflicts`, 10)
	require.Equal(t, Conflict, Classify(contended))
	require.False(t, Attempt{Sent: true}.MayHaveWorked(contended))
}
