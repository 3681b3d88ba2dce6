package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// The metric of panics has the name of the queue.
func TestDE59TheQueueHasTheNameOfTheController(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		controller.RegisterPanics(w.registry)
		w.evictor.effector = &defective{Effector: w.evictor.effector, name: "a"}
		panics := func() float64 {
			return w.value("tollgate_worker_panics_total", "queue=device-taint-eviction-controller")
		}
		before := panics()
		w.set(newClaim("c", "gpu-0", nil, "a"))
		w.setPod(using(newPod("a", "n"), "c"))
		w.setNode("n", noExecute("disk"))
		w.pass(time.Second)
		require.Greater(w.t, panics(), before)
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
	})
}
