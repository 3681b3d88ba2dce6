package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// offset is a clock that runs ahead of, or behind, the machine's.
type offset struct {
	clock.RealClock

	by time.Duration
}

func (o offset) Now() time.Time { return o.RealClock.Now().Add(o.by) }

func TestH04(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		t.Run("H04 deadlines are told by the clock of the API server, which differs by "+by.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.options.Clock = offset{by: by}
				gpu := noExecute("gpu")
				gpu.TimeAdded = new(metav1.NewTime(time.Now().Add(by)))
				w.setNode("n", gpu)
				pod := newPod("a", "n", tolerationFor("gpu", 60))
				pod.Status.Conditions[0].LastTransitionTime = *gpu.TimeAdded
				w.setPod(pod)
				w.start()
				w.pass(seconds(60))
				w.stays(podA)
				w.pass(seconds(1))
				w.leaves(podA)
			})
		})
	}
}

func TestH05WithoutTheLeaseNothingIsDone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var leads atomic.Bool
		w.options.Leads = leads.Load
		w.setNode("n", corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute})
		w.setPod(newPod("a", "n"))
		w.start()
		w.pass(30 * time.Minute)
		w.stays(podA)
		require.Empty(t, w.api.took(), "neither a pod nor a taint is written to")
		leads.Store(true)
		w.pass(seconds(2))
		w.leaves(podA)
	})
}
