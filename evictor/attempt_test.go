package evictor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
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
func TestINV4APanicInAnAttemptKeepsNothing(t *testing.T) {
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

// trippedFor are breakers of which that of one policy holds all pods.
type trippedFor string

func (t trippedFor) Ask(_ checks.Now, of *checks.Eviction) checks.Answer {
	for _, policy := range of.Treatment.Breakers {
		if policy.Name == string(t) {
			return trippedBy(of, policy)
		}
	}
	return checks.Answer{}
}

// TestReasonsBesideABreaker shows pods with several reasons to leave, of which a breaker holds one.
func TestReasonsBesideABreaker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"INV-4 a reason that is due later evicts then": func(w *world) {
			w.setPod(newPod("a", "n", tolerationFor("zzz", 40)))
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.pass(39 * time.Second)
			w.stays(podA)
			w.holds(checks.BreakerTripped, 1)
			w.pass(3 * time.Second)
			w.leaves(podA)
		},
		"a budget that holds the other reason is asked again, and the pod is held all the time": func(w *world) {
			w.setPolicy(newPolicy("q", byEviction, "zzz"))
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.pass(time.Second)
			since := w.evictor.Held()[0].Since
			w.pass(10 * time.Minute)
			w.holds(checks.BreakerTripped, 1)
			require.Equal(w.t, since, w.evictor.Held()[0].Since)
			require.Zero(w.t, matches(w.recorder.took(), "Node n Normal EvictionReleased"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.options.Breaker = trippedFor("p").Ask
				w.setPolicy(newPolicy("p", bounded, "gpu"))
				w.start()
				test(w)
			})
		})
	}
}

// TestPlacesOfPodsWithSeveralReasons shows that pods leave at the pace of one policy while another, which
// has a pace as well, holds them. Each asks again because of the latter now and then, and not whenever one
// of them is called: they would take the place from each other.
func TestPlacesOfPodsWithSeveralReasons(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*evictionSpec){"INV-4 by its breaker": bounded, "INV-4 by a budget": byEviction} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				const pods = 100
				w.options.Breaker = trippedFor("p").Ask
				w.setPolicy(newPolicy("p", func(spec *evictionSpec) { policy(spec); paced(1000, 1000)(spec) }, "gpu"), newPolicy("q", paced(10, 10), "zzz"))
				w.start()
				w.allow("web", 0)
				for i := range pods {
					w.setPod(labelled(newPod(podName(i), "n"), "web"))
				}
				w.setNode("n", noExecute("gpu"), noExecute("zzz"))
				w.pass(12 * time.Second)
				require.Equal(t, pods, w.gone(pods))
				require.LessOrEqual(t, matches(w.api.took(), "create pods/eviction"), 10*pods)
			})
		})
	}
}

// A pod that waits only for a pace is held by nothing, whatever held it before.
func TestPodsThatWaitForAPaceAreNotHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after func(*evictionSpec) }{
		"a budget that is not asked any more": {byEviction, paced(1, 1)},
		"a policy that was paused":            {paused, paced(1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", test.before))
				w.start()
				w.allow("web", 0)
				w.setNode("n", noExecute("gpu"))
				for i := range 5 {
					w.setPod(labelled(newPod(podName(i), "n"), "web"))
				}
				w.pass(time.Minute)
				require.Len(t, w.evictor.Held(), 5)
				w.setPolicy(newPolicy("p", test.after))
				w.pass(100 * time.Millisecond)
				require.Equal(t, 1, w.gone(5))
				w.holds("", 0)
			})
		})
	}
}

// A reason that is held no more is not shown beside one of which only the next attempt can tell.
func TestAReasonThatIsNotHeldAnyMoreIsNotShown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", paused, "gpu"), newPolicy("q", byEviction, "zzz"))
		w.start()
		w.allow("web", 0)
		w.setNode("n", noExecute("gpu"), noExecute("zzz"))
		for i := range 5 {
			w.setPod(labelled(newPod(podName(i), "n"), "web"))
		}
		w.pass(time.Minute)
		w.holds(checks.Paused, 5)
		w.api.setBudgetQuietly("web", 1)
		w.setPolicy(newPolicy("p", func(spec *evictionSpec) { byEviction(spec); paced(1, 1)(spec) }, "gpu"))
		w.pass(100 * time.Millisecond)
		require.Equal(t, 1, w.gone(5))
		w.holds(checks.Budget, 4)
	})
}
