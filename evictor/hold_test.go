package evictor

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

func (w *world) holds(reason checks.Reason, pods int) {
	w.t.Helper()
	held := w.evictor.Held()
	require.Len(w.t, held, pods)
	for _, one := range held {
		require.Equal(w.t, reason, one.Reason)
	}
	require.InDelta(w.t, float64(pods), w.value("tollgate_evictions_held", "reason="+string(reason)), 0)
	require.InDelta(w.t, float64(pods), w.value("tollgate_evictions_held"), 0)
}

func TestHolds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"a paused policy holds what it governs, and lets it go when it is not paused any more": func(w *world) {
			w.setPolicy(newPolicy("p", paused))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Hour)
			w.stays(podA)
			w.holds(checks.Paused, 1)
			require.Empty(w.t, w.api.took(), "what is held costs no request")
			require.Zero(w.t, w.value("tollgate_eviction_overdue_seconds"), "what is held is not late")
			w.setPolicy(newPolicy("p", nil))
			w.pass(time.Second)
			w.leaves(podA)
			w.holds("", 0)
		},
		"a policy that is paused while pods wait holds them when they are due": func(w *world) {
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.pass(time.Second)
			w.setPolicy(newPolicy("p", paused))
			w.pass(time.Hour)
			w.stays(podA)
			w.holds(checks.Paused, 1)
		},
		"a policy that goes lets go what it held": func(w *world) {
			w.setPolicy(newPolicy("p", paused))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.dropPolicy("p")
			w.pass(time.Second)
			w.leaves(podA)
		},
		"J13 a protected pod stays, its neighbour leaves": func(w *world) {
			w.setPolicy(newPolicy("p", func(spec *v1alpha1.EvictionPolicySpec) {
				spec.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"system-node-critical"}}
			}))
			w.start()
			critical := newPod("a", "n")
			critical.Spec.PriorityClassName = "system-node-critical"
			w.setPod(critical)
			w.setPod(newPod("b", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			w.stays(podA)
			w.leaves(podB)
			w.holds(checks.Protected, 1)
		},
		"a reason that is not held evicts, and is what the pod is marked for": func(w *world) {
			w.setPolicy(newPolicy("p", paused, "gpu"))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n", tolerationFor("disk", 10)))
			w.setNode("n", noExecute("gpu"), noExecute("disk"))
			w.pass(5 * time.Second)
			w.holds(checks.Paused, 1)
			w.pass(10 * time.Second)
			w.leaves(podA)
			require.Contains(w.t, w.recorder.took(), "Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint")
		},
		"a taint that goes ends the hold": func(w *world) {
			w.setPolicy(newPolicy("p", paused))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.holds(checks.Paused, 1)
			w.setNode("n")
			w.holds("", 0)
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
		},
		"labels of a namespace that are not known hold, and let go once they are": func(w *world) {
			var known atomic.Bool
			w.options.NamespaceLabels = func(string) (labels.Labels, bool) { return labels.Set{"team": "a"}, known.Load() }
			w.setPolicy(newPolicy("p", func(spec *v1alpha1.EvictionPolicySpec) { spec.NamespaceSelector = selectTeam("b") }))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Minute)
			w.stays(podA)
			w.holds(checks.NamespaceUnknown, 1)
			known.Store(true)
			w.pass(checks.Recheck)
			w.leaves(podA)
		},
		"a namespace whose labels change wakes what is held there, and nobody else": func(w *world) {
			var asked atomic.Int32
			w.options.NamespaceLabels = func(string) (labels.Labels, bool) {
				asked.Add(1)
				return labels.Set{"team": "b"}, true
			}
			w.setPolicy(newPolicy("p", func(spec *v1alpha1.EvictionPolicySpec) {
				spec.NamespaceSelector, spec.Paused = selectTeam("b"), true
			}))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.holds(checks.Paused, 1)
			asked.Store(0)
			w.evictor.NamespaceChanged("other")
			w.pass(time.Millisecond)
			require.Zero(w.t, asked.Load())
			w.evictor.NamespaceChanged("default")
			w.pass(time.Millisecond)
			require.Positive(w.t, asked.Load())
		},
		"J03 nobody leaves because all nodes are down, and all do 300 s after one is back": func(w *world) {
			w.start()
			w.setNode("n", noExecute(corev1.TaintNodeUnreachable))
			w.setNode("m", noExecute(corev1.TaintNodeUnreachable))
			w.setPod(newPod("a", "n", tolerationFor(corev1.TaintNodeUnreachable, 300)))
			w.pass(time.Hour)
			w.stays(podA)
			w.holds(checks.NodesDown, 1)
			w.setNode("m")
			w.pass(299 * time.Second)
			w.stays(podA)
			w.pass(3 * time.Second)
			w.leaves(podA)
		},
		"J03 a taint that somebody set evicts while all nodes are down": func(w *world) {
			w.start()
			w.setNode("n", noExecute(corev1.TaintNodeUnreachable), noExecute("gpu"))
			w.setPod(newPod("a", "n", forever(corev1.TaintNodeUnreachable)))
			w.pass(time.Second)
			w.leaves(podA)
		},
		"a new leader holds what the old one held": func(w *world) {
			w.setPolicy(newPolicy("p", paused))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			require.True(w.t, w.evictor.Settled())
			w.kill()
			require.False(w.t, w.evictor.Settled())
			w.holds("", 0)
			w.lead()
			w.pass(time.Second)
			require.True(w.t, w.evictor.Settled())
			w.holds(checks.Paused, 1)
			w.stays(podA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

// TestJ01 shows what a breaker does to the evictions that it bounds.
func TestJ01(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world, *rooms){
		"J01 one rule over every device stops at the limit and says so once": func(w *world, r *rooms) {
			r.set(3, 0)
			w.start()
			for i := range 10 {
				w.set(newClaim(podName(i), "gpu-0", nil, podName(i)))
				w.setPod(using(newPod(podName(i), "n"), podName(i)))
			}
			w.set(newRule("r", "", deviceTaint("broken")))
			w.pass(10 * time.Minute)
			require.Equal(w.t, 3, w.gone(10))
			w.holds(checks.BreakerTripped, 7)
			require.Equal(w.t, map[types.UID]int{"p-policy-uid": 7}, w.evictor.HeldByPolicy())
			pods, reason, why := w.evictor.HeldFor("r-rule-uid")
			require.Equal(w.t, 7, pods)
			require.Equal(w.t, "BreakerTripped", reason)
			require.Contains(w.t, why, "EvictionPolicy p")
			require.Equal(w.t, 1, matches(w.deviceRecorder.took(), "DeviceTaintRule r Warning EvictionHeld: Holding 7 pods that have to leave because of taint broken:NoExecute: the breaker of EvictionPolicy p "))
			require.Contains(w.t, w.deviceRecorder.annotations, map[string]string{
				"tollgate.dev/held-taint": "broken:NoExecute", "tollgate.dev/held-reason": "breaker_tripped", "tollgate.dev/held-policy": "p",
			}, "what commands read")

			r.set(5, 0)
			w.evictor.WakeHeld("p-policy-uid")
			w.pass(time.Second)
			require.Equal(w.t, 5, w.gone(10))
			r.set(100, 0)
			w.evictor.WakeHeld("another")
			w.pass(time.Second)
			require.Equal(w.t, 5, w.gone(10), "another policy holds nothing")
			w.evictor.WakeHeld("p-policy-uid")
			w.pass(2 * time.Second)
			require.Equal(w.t, 10, w.gone(10))
			require.Equal(w.t, 1, matches(w.deviceRecorder.took(), "DeviceTaintRule r Normal EvictionReleased: "))
		},
		"J01 what a breaker holds for hours costs no request": func(w *world, _ *rooms) {
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.holds(checks.BreakerTripped, 1)
			w.api.took()
			w.pass(time.Hour)
			require.Empty(w.t, w.api.took())
			w.stays(podA)
		},
		"J01 a breaker that nobody told of having room is asked every 30 s": func(w *world, r *rooms) {
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			r.set(2, 0)
			w.pass(checks.Recheck)
			w.leaves(podA)
		},
		"J05 while leave is being written a pod waits, held by nothing": func(w *world, r *rooms) {
			r.set(1, 200*time.Millisecond)
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.pass(10 * time.Second)
			w.stays(podA)
			w.holds("", 0)
			require.Less(w.t, r.times(), 60)
			r.set(1, 0)
			w.pass(time.Second)
			w.leaves(podA)
		},
		"J01 another reason, which no breaker bounds, evicts": func(w *world, _ *rooms) {
			w.setPolicy(newPolicy("free", func(spec *v1alpha1.EvictionPolicySpec) { spec.Priority = 1 }, "disk"))
			w.start()
			w.setNode("n", noExecute("gpu"), noExecute("disk"))
			w.setPod(newPod("a", "n"))
			w.pass(2 * time.Second)
			w.leaves(podA)
			require.Contains(w.t, w.recorder.took(), "Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				r := &rooms{gone: func() int { return w.gone(10) + w.goneOf(podA) }}
				w.options.Breaker, w.options.Workers = r.Ask, 1
				w.setPolicy(newPolicy("p", bounded))
				test(w, r)
			})
		})
	}
}

// gone counts the pods that have left of those with the first numbers.
func (w *world) gone(of int) int {
	gone := 0
	for i := range of {
		gone += w.goneOf("default/" + podName(i))
	}
	return gone
}

// goneOf is 1 if a pod is on its way out.
func (w *world) goneOf(key string) int {
	if pod := w.api.pod(key); pod != nil && pod.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

func TestPacedEvictions(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.setPolicy(newPolicy("p", paced(2, 4)))
		w.start()
		for i := range 20 {
			w.setPod(newPod(podName(i), "n"))
		}
		w.setNode("n", noExecute("gpu"))
		w.pass(10 * time.Millisecond)
		require.Equal(t, 4, w.gone(20), "the burst")
		w.pass(3 * time.Second)
		require.Equal(t, 10, w.gone(20), "two in a second")
		w.holds("", 0)
		w.setPolicy(newPolicy("p", nil))
		w.pass(10 * time.Millisecond)
		require.Equal(t, 20, w.gone(20), "without a pace all leave at once")
		require.Zero(t, w.evictor.rates.Len())
	})
}

func TestObserveEvictsNobody(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Mode = ModeObserve
		w.start()
		bare := noExecute("gpu")
		bare.TimeAdded = nil
		w.setNode("n", bare)
		w.setPod(newPod("a", "n"))
		w.pass(time.Minute)
		w.stays(podA)
		require.InDelta(t, 1, w.value("tollgate_evictions_pending"), 0)
		w.setNode("n")
		w.pass(time.Second)
		require.Empty(t, w.api.took(), "nothing is written")
		require.Empty(t, w.recorder.took(), "nothing is said that nobody does")
	})
}

func TestHeldMessages(t *testing.T) {
	t.Parallel()
	for _, reason := range checks.Reasons() {
		said := heldMessage(&heldGroup{holdKey: holdKey{carrier: tracker.Source{}, reason: reason}, pods: 1, policy: "p", taint: "a:NoExecute"})
		require.NotContains(t, said, "taint a:NoExecute: "+string(reason), "the reason is said in words")
		require.Contains(t, said, "Holding 1 pod that has to leave because of taint a:NoExecute: ")
		require.NotContains(t, releasedMessage(&heldGroup{holdKey: holdKey{reason: reason}, taint: "a:NoExecute"}), "EvictionPolicy")
	}
}
