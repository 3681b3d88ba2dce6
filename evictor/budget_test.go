package evictor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestG18(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"G18 a pod without a budget leaves by the Eviction API with one request, and nothing is patched before": func(w *world) {
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			require.Equal(w.t, []request{"get nodes n", "create pods/eviction default/a"}, w.api.took())
			require.Equal(w.t, "EvictionByEvictionAPI", tracker.PodOf(w.api.pod(podA)).Disruption.Reason)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "method=evict", "outcome=evicted"), 0)
			require.Equal(w.t, 1, matches(w.recorder.took(), "Pod default/a Normal TaintManagerEviction: Evicting Pod default/a, as EvictionPolicy p says"))
		},
		"G18 a budget of none blocks for ever, visibly, and nobody escalates": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(10 * time.Hour)
			w.stays(podA)
			w.holds(checks.Budget, 1)
			require.Zero(w.t, matches(w.api.took(), "delete pods"))
			events := w.recorder.took()
			require.Equal(w.t, 1, matches(events, "Node n Warning EvictionHeld: Holding 1 pod that has to leave because of taint gpu:NoExecute: their PodDisruptionBudgets do not let them go."))
			require.Equal(w.t, 1, matches(events, "Pod default/a Warning TaintManagerEvictionHeldUp: "))
			require.Positive(w.t, w.value("tollgate_eviction_retries_total", "reason=budget"))
		},
		"G18 a blocked pod is asked for every 30 s at most": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(time.Minute)
			w.api.took()
			w.pass(time.Hour)
			require.InDelta(w.t, 120, matches(w.api.took(), "create pods/eviction"), 2)
		},
		"G18 a budget that allows more lets go at once": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.setPod(labelled(newPod("b", "n"), "web"))
			w.pass(10 * time.Minute)
			w.allow("web", 1)
			w.pass(10 * time.Millisecond)
			require.NotEqual(w.t, w.leaving(podA), w.leaving(podB), "one of both")
			w.holds(checks.Budget, 1)
			w.allow("web", 0)
			w.allow("web", 1)
			w.pass(10 * time.Millisecond)
			w.leaves(podA)
			w.leaves(podB)
			w.holds("", 0)
		},
		"G18 two budgets are told of in the words of the API server, and tried again": func(w *world) {
			w.allow("web", 5)
			w.allow("db", 5)
			w.setPod(labelled(newPod("a", "n"), "web", "db"))
			w.pass(10 * time.Minute)
			w.stays(podA)
			w.holds(checks.Budget, 1)
			require.Equal(w.t, 1, matches(w.recorder.took(), "Pod default/a Warning TaintManagerEvictionHeldUp: Pod default/a has to leave its node, and this is tried again and again: This pod has more than one PodDisruptionBudget"))
			require.Contains(w.t, w.recorder.annotations, map[string]string{
				"tollgate.dev/held-up-because": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}, "what commands read")
			require.Positive(w.t, w.value("tollgate_eviction_retries_total", "reason=budgets"))
			w.api.mu.Lock()
			delete(w.api.budgets, "db")
			w.api.mu.Unlock()
			w.pass(checks.Recheck)
			w.leaves(podA)
		},
		"G18 a budget whose numbers make no sense is one that blocks": func(w *world) {
			w.api.setFaults(every(is("create pods/eviction"), errBadBudget), nil)
			w.setPod(newPod("a", "n"))
			w.pass(time.Minute)
			w.holds(checks.Budget, 1)
			w.api.setFaults(nil, nil)
			w.pass(checks.Recheck)
			w.leaves(podA)
		},
		"G18 a blocked pod whose taint goes is held no more": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(time.Minute)
			w.holds(checks.Budget, 1)
			w.setNode("n")
			w.pass(time.Second)
			w.holds("", 0)
			require.Zero(w.t, w.value("tollgate_evictions_pending"))
		},
		"G18 an answer that was lost is an eviction once the pod is on its way out": func(w *world) {
			w.api.setFaults(nil, first(1, is("create pods/eviction"), errLost))
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.leaves(podA)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "method=evict", "outcome=evicted"), 0)
		},
		"G18 a pod that changed costs its budget nothing": func(w *world) {
			w.allow("web", 1)
			w.api.setLag(true)
			w.setPod(labelled(newPod("a", "n", tolerationFor("gpu", 30)), "web"))
			w.api.setLag(false)
			w.pass(time.Second)
			w.api.setLag(true)
			w.update(podA, func(p *corev1.Pod) { p.Status.Message = "as busy as ever" })
			w.pass(40 * time.Second)
			w.leaves(podA)
			require.Zero(w.t, w.api.budgets["web"], "the one pod that it let go")
			require.Equal(w.t, 1, matches(w.api.took(), "create pods/eviction"))
		},
		"G18 a budget that is deleted while it is asked is no pod that is gone": func(w *world) {
			gone := apierrors.NewNotFound(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "web")
			w.api.setFaults(first(1, is("create pods/eviction"), gone), nil)
			w.setPod(newPod("a", "n"))
			w.pass(time.Second)
			w.leaves(podA)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=evicted"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", byEviction))
				w.start()
				w.setNode("n", noExecute("gpu"))
				w.api.took()
				test(w)
			})
		})
	}
}

func TestDeleteAfter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"G18 a pod that its budget does not let go is deleted when its time is up, not before, and the event says why": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(10*time.Minute - time.Second)
			w.stays(podA)
			w.pass(2 * time.Second)
			w.leaves(podA)
			w.pass(10 * time.Second)
			events := w.recorder.took()
			require.Equal(w.t, 1, matches(events, "Pod default/a Normal TaintManagerEviction: Marking for deletion Pod default/a: its PodDisruptionBudget did not let it go until 2000-01-01T00:10:00Z, deleteAfter of EvictionPolicy p"))
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "method=delete", "outcome=evicted"), 0)
			w.holds("", 0)
		},
		"however long it was held by something else, its budget is asked first": func(w *world) {
			w.setPolicy(newPolicy("p", func(spec *evictionSpec) { deleteAfter(10 * time.Minute)(spec); spec.Paused = true }))
			w.allow("web", 1)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(time.Hour)
			w.setPolicy(newPolicy("p", deleteAfter(10*time.Minute)))
			w.pass(time.Second)
			w.leaves(podA)
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "method=evict", "outcome=evicted"), 0)
		},
		"J05 a new leader deletes when the same time is up": func(w *world) {
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.pass(5 * time.Minute)
			w.restart()
			w.pass(5*time.Minute - time.Second)
			w.stays(podA)
			w.pass(2 * time.Second)
			w.leaves(podA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", deleteAfter(10*time.Minute)))
				w.start()
				w.setNode("n", noExecute("gpu"))
				test(w)
			})
		})
	}
}

// TestBlockedPodsHoldUpNobody shows that budgets of some are not the business of others.
func TestBlockedPodsHoldUpNobody(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Workers = 2
		w.setPolicy(newPolicy("p", func(spec *evictionSpec) { byEviction(spec); paced(5, 5)(spec) }))
		w.allow("web", 0)
		w.start()
		for i := range 20 {
			w.setPod(labelled(newPod(podName(i), "n"), "web"))
		}
		for i := range 20 {
			w.setPod(newPod(podName(20+i), "n"))
		}
		w.setNode("n", noExecute("gpu"))
		w.pass(6 * time.Second)
		require.Equal(t, 20, w.gone(40), "whom budgets block uses up no pace")
		w.holds(checks.Budget, 20)
	})
}

func TestClassifyBudgets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		want act.Failure
		says string
	}{
		{"a budget that lets nobody go", errBudget, act.BudgetExceeded, "The disruption budget web needs 2 healthy pods and has 2 currently"},
		{"a budget with a negative number", errBadBudget, act.BudgetExceeded, "The disruption budget web does not allow evicting pods currently: pdb disruptions allowed is negative"},
		{"two budgets", errTwoBudgets, act.TwoBudgets, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."},
		{"an API server that is busy", errBusy, act.Throttled, "throttled"},
		{"a deadline", context.DeadlineExceeded, act.Timeout, "timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, act.Classify(test.err))
			require.Equal(t, test.says, act.Explain(test.err))
			require.False(t, test.want.Blocked() && (test.want.Ambiguous() || test.want.Transient()))
		})
	}
}
