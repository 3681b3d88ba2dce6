package rulestatus

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// asked are the pods whose end was asked for, with no answer so far.
type asked struct {
	mu   sync.Mutex
	pods []tracker.Key
	// answered is called once somebody has been told of the pods, which are answered then.
	answered func()
}

func (a *asked) set(pods ...tracker.Key) { a.setUntilTold(nil, pods...) }

func (a *asked) setUntilTold(answered func(), pods ...tracker.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods, a.answered = pods, answered
}

func (a *asked) unanswered(types.UID) []tracker.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := a.pods
	if a.answered != nil {
		a.answered()
		a.pods, a.answered = nil, nil
	}
	return pods
}

func TestDE77UnansweredPodsArePending(t *testing.T) {
	t.Parallel()

	t.Run("DE-77 a rule is not done before the answers to its deletions, however long they take", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a := &asked{}
			w.options.Unanswered = a.unanswered
			gone, ending, left := w.pod("shop", "gone"), w.pod("bank", "ending"), w.pod("shop", "left")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", left)
			a.set(gone, ending)
			w.tracker.DeletePod(gone)
			w.tracker.SetTerminating(ending)
			w.pending("broken")
			w.pass(time.Hour)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "2 pods need to be evicted in 2 different namespaces. 1 pod evicted so far.")
			a.set()
			w.evict("broken", gone, ending)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "3 pods evicted so far.")
		})
	})

	t.Run("DE-65 a pod that has to leave and was asked to counts once", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a := &asked{}
			w.options.Unanswered = a.unanswered
			a.set(w.pod("shop", "a"))
			w.pod("shop", "b")
			w.start()
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "2 pods need to be evicted in 1 namespace.")
		})
	})

	t.Run("DE-77 a pod that is counted after it was asked for is found all the same", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a := &asked{}
			w.options.Unanswered = a.unanswered
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.tracker.SetTerminating(key)
			a.setUntilTold(func() { w.count("broken") }, key)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "1 pod evicted so far.")
			for _, write := range w.log() {
				require.NotEqual(t, ReasonNotStarted, write.conditions[0].Reason)
			}
		})
	})

	t.Run("DE-69 a preview does not tell of them", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a := &asked{}
			w.options.Unanswered = a.unanswered
			key := w.pod("shop", "a")
			w.tracker.SetTerminating(key)
			a.set(key)
			w.start()
			w.setEffect("broken", none)
			w.previews("broken", isFalse, ReasonNoPods,
				"0 published devices selected. 1 allocated device selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute.")
		})
	})
}
