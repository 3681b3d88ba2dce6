package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// A defect that one pod meets costs the others nothing, and that pod a while.
func TestAPanicIsOfOnePodOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		var mended atomic.Bool
		w.options.NamespaceLabels = func(namespace string) (labels.Labels, bool) {
			if !mended.Load() && namespace == "defect" {
				panic("a defect")
			}
			return labels.Set{}, true
		}
		w.setPolicy(newPolicy("p", nil))
		w.start()
		w.setNode("n", noExecute("gpu"))
		bad := newPod("bad", "n")
		bad.Namespace = "defect"
		w.setPod(bad)
		w.setPod(newPod("a", "n"))
		w.pass(time.Second)
		w.stays("defect/bad")
		w.leaves(podA)
		mended.Store(true)
		w.pass(time.Minute)
		w.leaves("defect/bad")
	})
}

// A panic of a loop ends neither the process nor the loop.
func TestAPanicOfALoopDoesNotEndIt(t *testing.T) {
	t.Run("that keeps house", func(t *testing.T) {
		inWorld(t, func(w *world) {
			found := make(chan ModeFinding, 10)
			w.options.Mode = ModeObserve
			w.options.FitChanged = func(finding ModeFinding) {
				found <- finding
				if finding == NobodyEvicts {
					panic("a defect")
				}
			}
			w.start()
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			require.Len(t, found, 1)
			w.api.remove(podA)
			w.pass(10 * time.Minute)
			require.Equal(t, []ModeFinding{NobodyEvicts, Fits}, []ModeFinding{<-found, <-found})
		})
	})
	t.Run("that calls pods at their pace", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.setPolicy(newPolicy("p", paced(1, 1)))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.setPod(newPod("b", "n"))
			w.leaves(podA)
			pods := w.evictor.pods
			use := func(queue *controller.Controller[tracker.Key]) {
				w.evictor.state.mu.Lock() // The loop takes it before it reads the queue.
				defer w.evictor.state.mu.Unlock()
				w.evictor.pods = queue
			}
			use(nil) // The call of the next pod panics.
			w.pass(2 * time.Second)
			use(pods)
			w.pass(time.Minute)
			w.leaves(podB)
			for i := range 5 {
				w.setPod(newPod(podName(i), "n"))
			}
			w.pass(5 * time.Second)
			require.Equal(t, 5, w.gone(5))
		})
	})
}
