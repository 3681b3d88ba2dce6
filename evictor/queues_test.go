package evictor

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// idle returns an evictor with queues and no workers.
func idle(t *testing.T) (*Evictor, *queues) {
	t.Helper()
	e, err := New(Options{
		Source:   Source{Tracker: tracker.New(), Synced: func() bool { return true }},
		Requests: Requests{Client: fake.NewClientset()}, Events: Events{Recorder: &fakeRecorder{}},
		Clocks: Clocks{Clock: clock.RealClock{}}, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
	})
	require.NoError(t, err)
	q := newQueues(clock.RealClock{})
	t.Cleanup(q.shutDown)
	e.run(q)
	return e, q
}

// keyOfPod returns the key of a pod, which the tracker is told of.
func keyOfPod(e *Evictor, pod *corev1.Pod) tracker.Key {
	e.tracker.SetPod(tracker.PodOf(pod))
	return tracker.PodOf(pod).Key
}

func TestQueues(t *testing.T) {
	t.Parallel()

	t.Run("DE-59 pods that use claims have a queue of their own", func(t *testing.T) {
		t.Parallel()
		e, q := idle(t)
		plain, claiming := keyOfPod(e, newPod("a", "n")), keyOfPod(e, using(newPod("b", "n"), "c"))
		e.PodsChanged([]tracker.Key{plain, claiming, {Name: "unknown"}})
		require.Equal(t, 2, q.plain.Len())
		require.Equal(t, 1, q.claiming.Len())
		got, _ := q.claiming.Get()
		require.Equal(t, claiming, got)
		require.Equal(t, "taint-eviction-controller", nodeQueue)
		require.Equal(t, "device-taint-eviction-controller", deviceQueue)
	})

	t.Run("a pod whose claims show up while it waits changes over, and is not handled before", func(t *testing.T) {
		t.Parallel()
		e, q := idle(t)
		key := keyOfPod(e, using(newPod("a", "n"), "c"))
		wait, err := e.stepIn(q, false)(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, wait)
		require.Equal(t, 1, q.claiming.Len())
		require.Zero(t, q.plain.Len())
		_, err = e.stepIn(q, true)(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, q.plain.Len(), "it does not go back and forth")
	})

	t.Run("a pod that is in the hands of a worker waits a little", func(t *testing.T) {
		t.Parallel()
		e, q := idle(t)
		key := keyOfPod(e, newPod("a", "n"))
		require.True(t, e.hands.take(key))
		wait, err := e.stepIn(q, false)(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, handPause, wait)
		e.hands.release(key)
		wait, err = e.stepIn(q, false)(t.Context(), key)
		require.NoError(t, err)
		require.Zero(t, wait)
		require.Empty(t, e.hands.busy)
	})
}

// TestClaimsAppearLater has the claim of a pod show up while its node's eviction is
// on its way: one worker evicts it, and once.
func TestClaimsAppearLater(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setNode("n", noExecute("disk"))
		w.set(newRule("r", "", deviceTaint("gpu")))
		w.set(newClaim("c", "gpu-0", nil, "a"))
		w.start()
		w.evictor.effector = slowEffector{w.evictor.effector}
		w.setPod(newPod("a", "n"))
		w.pass(500 * time.Millisecond)
		w.update(podA, func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}
		})
		w.pass(time.Minute)
		w.leaves(podA)
		require.Equal(w.t, 1, matches(w.api.took(), "delete pods"))
		require.InDelta(w.t, 1, w.value("tollgate_evictions_total"), 0)
		require.Empty(w.t, w.evictor.hands.busy)
	})
}
