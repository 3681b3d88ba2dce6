package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/policy/eviction"
)

// TestReasonsBesideABudget shows pods with several reasons to leave, of which a budget
// holds one.
func TestReasonsBesideABudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"INV-4 G18 two budgets hold one reason, and another that asks none evicts at once": func(w *world) {
			w.allow("web", 5)
			w.allow("db", 5)
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.setPod(labelled(newPod("a", "n"), "web", "db"))
			w.pass(time.Second)
			w.leaves(podA)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "method=delete", "outcome=evicted"), 0)
			w.holds("", 0)
		},
		"INV-4 a reason that is due later evicts then": func(w *world) {
			w.allow("web", 0)
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.setPod(labelled(newPod("a", "n", tolerationFor("zzz", 600)), "web"))
			w.pass(599 * time.Second)
			w.stays(podA)
			w.holds(checks.Budget, 1)
			w.pass(3 * time.Second)
			w.leaves(podA)
		},
		"INV-4 deleteAfter of the other policy ends first": func(w *world) {
			w.setPolicy(newPolicy("q", deleteAfter(95*time.Second), "zzz"))
			w.allow("web", 0)
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(94 * time.Second)
			w.stays(podA)
			w.pass(1500 * time.Millisecond)
			w.leaves(podA)
			require.Less(w.t, matches(w.api.took(), "create pods/eviction"), 12, "one budget is asked once for both")
		},
		"INV-4 the other reason waits its turn in its own line, and keeps its place": func(w *world) {
			w.setPolicy(newPolicy("q", paced(1, 1), "zzz"))
			w.allow("web", 0)
			for i := range 4 {
				w.setPod(labelled(newPod(podName(i), "n"), "web"))
			}
			w.setNode("n", noExecute("gpu"), noExecute("zzz"))
			w.pass(10 * time.Second)
			require.Equal(w.t, 4, w.gone(4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", byEviction, "gpu"))
				w.start()
				test(w)
			})
		})
	}
}

// holder returns what the status of policies is made from.
func (w *world) holder() (reason checks.Reason, policy string) {
	w.t.Helper()
	held := w.evictor.Held()
	require.Len(w.t, held, 1)
	return held[0].Reason, held[0].PolicyName
}

func TestTheEarliestReasonIsShown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", bounded, "gpu"), newPolicy("q", paused, "zzz"))
		w.start()
		w.setNode("n", noExecute("gpu"), noExecute("zzz"))
		w.setPod(newPod("a", "n"))
		w.pass(time.Second)
		reason, policy := w.holder()
		require.Equal(t, checks.BreakerTripped, reason)
		require.Equal(t, "p", policy)
	})
}

// firstBound are breakers of which that of the first policy, by name, is always tripped.
type firstBound struct{}

func (firstBound) Ask(_ checks.Now, of *checks.Eviction) checks.Answer {
	first := of.Treatment.Breakers[0]
	for _, policy := range of.Treatment.Breakers {
		if policy.Name < first.Name {
			first = policy
		}
	}
	return trippedBy(of, first)
}

func TestJ01AnotherBreakerHoldsAPodByThen(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Breaker = firstBound{}.Ask
		w.setPolicy(newPolicy("p", bounded), newPolicy("q", bounded))
		w.start()
		w.setNode("n", noExecute("gpu"))
		w.setPod(newPod("a", "n"))
		w.pass(time.Second)
		_, before := w.holder()
		require.Equal(t, map[types.UID]int{types.UID(before + "-policy-uid"): 1}, w.evictor.HeldByPolicy())
		after := map[string]string{"p": "q", "q": "p"}[before]
		w.dropPolicy(before)
		w.pass(time.Second)
		_, now := w.holder()
		require.Equal(t, after, now)
		require.Equal(t, map[types.UID]int{types.UID(after + "-policy-uid"): 1}, w.evictor.HeldByPolicy())
	})
}

func TestJ01APodThatOneBreakerHoldsCountsForTheOthersThatBindIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Breaker = firstBound{}.Ask
		selected := func(spec *v1alpha1.EvictionPolicySpec) {
			bounded(spec)
			spec.Breaker.Scope = v1alpha1.LimitScopeSelected
		}
		w.setPolicy(newPolicy("p", selected), newPolicy("q", selected))
		w.start()
		w.setNode("n", noExecute("gpu"), noExecute("disk"))
		w.setPod(newPod("a", "n"))
		w.setPod(newPod("b", "n"))
		w.pass(time.Second)
		require.Equal(t, map[types.UID]int{"p-policy-uid": 2, "q-policy-uid": 2}, w.evictor.HeldByPolicy())
	})
}

// The breaker holds its pods again when the pause ends.
func TestJ01APauseReleasesNoBreaker(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", bounded))
		w.start()
		w.setNode("n", noExecute("gpu"), noExecute("disk"))
		w.setPod(newPod("a", "n"))
		w.pass(time.Second)
		w.holds(checks.BreakerTripped, 1)
		w.setPolicy(newPolicy("stop", func(spec *v1alpha1.EvictionPolicySpec) { spec.Priority, spec.Paused = 9, true }))
		for range 3 {
			w.pass(time.Minute)
			w.holds(checks.Paused, 1)
			require.Equal(t, map[types.UID]int{"p-policy-uid": 1}, w.evictor.HeldByPolicy())
		}
		w.dropPolicy("stop")
		w.pass(time.Second)
		w.holds(checks.BreakerTripped, 1)
	})
}

// TestPoliciesThatChangeWhileAPodIsJudged has a policy be released after a worker has
// read it and before what it holds is in the state.
func TestPoliciesThatChangeWhileAPodIsJudged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", paused))
		var armed atomic.Bool
		w.options.Policies = func() *eviction.Set {
			set := w.policies.current()
			if armed.CompareAndSwap(true, false) {
				w.policies.change(func(all map[string]v1alpha1.EvictionPolicy) { all["p"] = newPolicy("p", nil) })
				w.evictor.PoliciesChanged()
			}
			return set
		}
		w.start()
		w.setNode("n", noExecute("gpu"))
		armed.Store(true)
		w.setPod(newPod("a", "n"))
		w.pass(time.Second)
		require.False(t, armed.Load())
		w.leaves(podA)
	})
}

func TestObserveHoldsNobody(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Mode = ModeObserve
		w.setPolicy(newPolicy("p", paused))
		w.start()
		w.setNode("n", noExecute("gpu"))
		w.setPod(newPod("a", "n"))
		w.pass(time.Minute)
		w.stays(podA)
		w.holds("", 0)
		require.Empty(t, w.recorder.took())
		require.InDelta(t, 1, w.value("tollgate_evictions_pending"), 0)
	})
}

// TestPlacesInLine shows that what is not the fault of a pod costs it nothing but time.
func TestPlacesInLine(t *testing.T) {
	t.Parallel()
	t.Run("a pod that waits for its breaker keeps its place", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			r := &rooms{gone: func() int { return 0 }}
			r.set(100, 3*time.Second)
			w.options.Breaker, w.options.Workers = r.Ask, 1
			w.setPolicy(newPolicy("p", func(spec *evictionSpec) { bounded(spec); paced(1, 1)(spec) }))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod(podName(0), "n"))
			w.pass(10 * time.Millisecond)
			r.set(100, 0)
			w.pass(2 * time.Second)
			w.setPod(newPod(podName(9), "n"))
			w.pass(10 * time.Millisecond)
			for i := 1; i < 9; i++ {
				w.setPod(newPod(podName(i), "n"))
			}
			w.pass(2 * time.Second)
			require.True(t, w.leaving("default/"+podName(0)), "whoever came later does not go before it")
		})
	})
	t.Run("a called pod whose taint cannot be read does not keep others waiting", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.options.MaxAge = time.Millisecond
			w.setPolicy(newPolicy("p", paced(1, 1)))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setNode("m", noExecute("gpu"))
			w.setPod(newPod(podName(0), "m"))
			w.pass(100 * time.Millisecond)
			w.setPod(newPod("a", "n"))
			w.pass(100 * time.Millisecond)
			w.setPod(newPod("b", "m"))
			w.pass(100 * time.Millisecond)
			w.stays(podA)
			w.stays(podB)
			w.api.setFaults(every(is("get nodes n"), errDown), nil)
			w.pass(1500 * time.Millisecond)
			w.stays(podA)
			w.leaves(podB)
		})
	})
}
