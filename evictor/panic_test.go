package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
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
