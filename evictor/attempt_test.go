package evictor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

// defective panics on the pod with that name, and evicts all others.
type defective struct {
	act.Effector

	name   string
	mended atomic.Bool
	panics atomic.Int32
}

func (d *defective) Evict(ctx context.Context, what act.Order) (act.Attempt, error) {
	if what.Pod.Name == d.name && !d.mended.Load() {
		d.panics.Add(1)
		panic("a defect")
	}
	return d.Effector.Evict(ctx, what)
}

// A panic in an attempt gives back what the attempt had: room in the throttle, a place at the budget,
// tokens of rates.
func TestAPanicInAnAttemptKeepsNothing(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*evictionSpec){
		"the throttle": nil,
		"a budget":     byEviction,
		"a pace":       paced(1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.options.Workers = 8
				w.setPolicy(newPolicy("p", policy))
				w.start()
				w.allow("web", 10)
				effector := &defective{Effector: w.evictor.effector, name: "a"}
				w.evictor.effector = effector
				w.setNode("n", noExecute("gpu"))
				w.setPod(labelled(newPod("a", "n"), "web"))
				w.pass(time.Hour)
				require.Greater(t, effector.panics.Load(), int32(100), "it is tried again and again")
				w.setPod(labelled(newPod("b", "n"), "web"))
				w.pass(time.Minute)
				w.leaves(podB)
				effector.mended.Store(true)
				w.pass(time.Minute)
				w.leaves(podA)
			})
		})
	}
}
