package evictor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
)

// TestWindow evicts within the time that pods were given.
func TestWindow(t *testing.T) {
	t.Parallel()
	given := func(pod *corev1.Pod, key string, seconds int64) *corev1.Pod {
		pod.Annotations = map[string]string{v1alpha1.AnnotationWindow: fmt.Sprintf("%s=%d", key, seconds)}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerationFor(key, seconds))
		return pod
	}
	for name, test := range map[string]func(*world){
		"a pod leaves at once, within the time that it was given, once the twin of the taint stands": func(w *world) {
			w.setPod(given(newPod("a", "n"), "gpu", 300))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			w.stays(podA)
			w.holds(checks.TwinMissing, 1)
			w.setNode("n", noExecute("gpu"), corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
			w.pass(time.Second)
			w.leaves(podA)
		},
		"a toleration that its user chose holds": func(w *world) {
			w.setPod(given(newPod("a", "n", tolerationFor("gpu", 60)), "gpu", 300))
			w.setNode("n", noExecute("gpu"), corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
			w.pass(59 * time.Second)
			w.stays(podA)
			w.pass(3 * time.Second)
			w.leaves(podA)
		},
		"a taint without a window is the business of Kubernetes": func(w *world) {
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("disk"), corev1.Taint{Key: "disk", Effect: corev1.TaintEffectNoSchedule})
			w.pass(time.Hour)
			w.stays(podA)
			w.holds("", 0)
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
		},
		"a window that is taken back ends what was pending": func(w *world) {
			w.setPod(given(newPod("a", "n", tolerationFor("gpu", 60)), "gpu", 300))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
			w.dropPolicy("p")
			w.pass(time.Second)
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.options.Mode = ModeWindow
				w.setPolicy(newPolicy("p", func(spec *evictionSpec) { spec.Inject = &v1alpha1.EvictionInjection{Seconds: 300} }, "gpu"))
				w.start()
				test(w)
			})
		})
	}
}
