package evictor

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

func TestNE30DE55OnlyTheLeaderEvicts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPod(newPod("a", "n"))
		w.start()
		w.kill()
		w.setNode("n", noExecute("gpu"))
		w.pass(time.Hour)
		require.Empty(t, w.api.took(), "an evictor that does not run does nothing")
	})
}

func TestWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"H08 many deadlines at the same second do not keep another waiting": func(w *world) {
			const many = 2000
			for i := range many {
				w.setPod(newPod(podName(i), "n", tolerationFor("gpu", 60)))
			}
			w.setPod(newPod("a", "n", tolerationFor("gpu", 59)))
			w.setNode("n", noExecute("gpu"))
			w.pass(seconds(60))
			w.leaves(podA)
			require.Zero(w.t, w.gone(many))
			w.pass(seconds(2))
			require.Equal(w.t, many, w.gone(many))
		},
		"NE-26 a pod leaves once, at the earliest of its times": func(w *world) {
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.setNode("n", noExecute("gpu"))
			w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerationFor("gpu", 10)} })
			w.pass(seconds(11))
			w.leaves(podA)
			w.pass(time.Hour)
			require.Equal(w.t, 1, matches(w.api.took(), "delete pods"))
		},
		"a pod that fails waits longer each time up to a bound, alone": func(w *world) {
			w.api.setFaults(every(is("delete pods default/a"), errDenied), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			w.stays(podA)
			require.InDelta(w.t, 30, matches(w.api.took(), "delete pods default/a"), 5)
			w.api.setFaults(first(1, is("delete pods default/b"), errDenied), nil)
			w.setPod(newPod("b", "n"))
			w.pass(retryBase)
			w.leaves(podB)
			w.pass(controller.RetryMax)
			w.leaves(podA)
		},
		"I05 a pod that conflicts again and again does not wait longer and longer": func(w *world) {
			w.api.setFaults(every(is("delete pods default/a"), errConflict), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			w.stays(podA)
			w.api.setFaults(nil, nil)
			w.pass(conflictMax)
			w.leaves(podA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.start()
				test(w)
			})
		})
	}
}

func TestG04(t *testing.T) {
	t.Parallel()
	t.Run("G04 a taint that flaps ten times a second fills no queue and evicts nobody who tolerates it for a second", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			for i := range 20 {
				w.setPod(newPod(fmt.Sprintf("p%d", i), "n", tolerationFor("gpu", 1)))
			}
			w.start()
			for range 100 {
				w.setNode("n", noExecute("gpu"))
				w.pass(100 * time.Millisecond)
				w.setNode("n")
				w.pass(100 * time.Millisecond)
			}
			require.Empty(w.t, w.api.took())
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
			require.Positive(w.t, w.value("tollgate_eviction_events_dropped_total"))
		})
	})
}

func TestTheLogSaysWhatTheEvictorWaitsFor(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var lines []string
		w.options.Synced = func() bool { return false }
		w.options.Missing = func() []string { return []string{"policies"} }
		w.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		w.start()
		w.pass(95 * time.Second)
		w.kill()
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], `"missing"=["policies"]`)
	})
}
