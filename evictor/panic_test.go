package evictor

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/evictor/act"
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

// panicsOnce panics at the first attempt for each pod.
type panicsOnce struct {
	act.Effector

	mu   sync.Mutex
	seen map[tracker.Key]bool
}

func (p *panicsOnce) Evict(ctx context.Context, what act.Order) (act.Attempt, error) {
	p.mu.Lock()
	first := !p.seen[what.Pod.Key]
	p.seen[what.Pod.Key] = true
	p.mu.Unlock()
	if first {
		panic("a defect")
	}
	return p.Effector.Evict(ctx, what)
}

// A panic gives back what the attempt had: else some panics would stop all evictions.
func TestINV4APanicOfAnAttemptTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*evictionSpec){
		"room under the throttle": func(*evictionSpec) {},
		"a place at a budget":     byEviction,
		"a token of a rate":       paced(5, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				const pods = 10
				w.options.Workers = 1
				w.setPolicy(newPolicy("p", policy))
				w.start()
				w.allow("web", pods)
				w.evictor.effector = &panicsOnce{Effector: w.evictor.effector, seen: map[tracker.Key]bool{}}
				for i := range pods {
					w.setPod(labelled(newPod(podName(i), "n"), "web"))
				}
				w.setNode("n", noExecute("gpu"))
				w.pass(10 * time.Minute)
				for i := range pods {
					w.leaves("default/" + podName(i))
				}
			})
		})
	}
}
