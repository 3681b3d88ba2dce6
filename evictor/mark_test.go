package evictor

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

func markedBy(mark v1alpha1.EvictionMark) func(*evictionSpec) {
	return func(spec *evictionSpec) { spec.Mark = mark }
}

// marks returns the reason of the DisruptionTarget condition of a pod, empty for none.
func (w *world) marks(key string) string {
	if mark := tracker.PodOf(w.api.pod(key)).Disruption; mark != nil {
		return mark.Reason
	}
	return ""
}

var (
	marking  = []request{"patch pods/status default/a", "delete pods default/a"}
	evicting = []request{"create pods/eviction default/a"}
	before   = "DeletionByTaintManager"
	byAPI    = "EvictionByEvictionAPI"
)

func TestMarkByEvictionAPI(t *testing.T) {
	t.Parallel()
	errUnauthorized := apierrors.NewUnauthorized("who are you")
	errForbidden := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}}
	for name, test := range map[string]struct {
		pod   func() *corev1.Pod
		does  func(*world)
		fault error
		// requests are those within the first millisecond, and reason that of the mark then.
		requests []request
		reason   string
	}{
		"a pod that no budget guards leaves with one request": {requests: evicting, reason: byAPI},
		"a pod that a budget guards is marked before, and its budget is not asked": {
			pod: func() *corev1.Pod { return labelled(newPod("a", "n"), "web") }, does: func(w *world) { w.allow("web", 0) }, requests: marking, reason: before,
		},
		"a pod whose budget nobody has heard of is marked before": {
			pod:  func() *corev1.Pod { return labelled(newPod("a", "n"), "web") },
			does: func(w *world) { w.api.setBudgetQuietly("web", 0) }, requests: append(evicting[:1:1], marking...), reason: before,
		},
		"a webhook that refuses evictions does not keep the pod": {fault: errBrokenWebhook, requests: append(evicting[:1:1], marking...), reason: before},
		"a program that may not evict deletes":                   {fault: errForbidden, requests: append(evicting[:1:1], marking...), reason: before},
		"credentials that are not known are as bad for a deletion": {
			fault: errUnauthorized, requests: evicting,
		},
		"an API server that has too much to do is left alone": {fault: errBusy, requests: evicting},
		"a lost answer is none":                               {fault: errLost, requests: evicting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", markedBy(v1alpha1.EvictionMarkByEvictionAPI)))
				w.start()
				if test.does != nil {
					test.does(w)
				}
				if test.fault != nil {
					w.api.setFaults(first(1, is("create pods/eviction"), test.fault), nil)
				}
				pod := newPod("a", "n")
				if test.pod != nil {
					pod = test.pod()
				}
				w.setPod(pod)
				w.api.took()
				w.setNode("n", noExecute("gpu"))
				w.pass(time.Millisecond)
				require.Equal(t, append([]request{"get nodes n"}, test.requests...), w.api.took())
				require.Equal(t, test.reason, w.marks(podA))
				w.pass(time.Minute)
				w.leaves(podA)
				require.InDelta(t, 1, w.value("tollgate_evictions_total", "method=delete", "outcome=evicted"), 0)
			})
		})
	}
}

func TestMarkWhileTerminating(t *testing.T) {
	t.Parallel()
	deletion := request("delete pods default/a")
	for name, test := range map[string]func(*world){
		"a pod is deleted first, and marked while it terminates": func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			require.Equal(w.t, []request{"get nodes n", deletion, marking[0]}, w.api.took())
			w.leaves(podA)
			require.Equal(w.t, before, w.marks(podA))
		},
		"a mark that is refused is not tried again": func(w *world) {
			w.api.setFaults(every(is("patch pods"), errBusy), nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			require.Equal(w.t, []request{"get nodes n", deletion, marking[0]}, w.api.took())
			w.leaves(podA)
			require.Empty(w.t, w.marks(podA))
			require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=evicted"), 0)
		},
		"a panic while a pod is marked costs that mark": func(w *world) {
			w.api.setFaults(once(is("patch pods"), func() error { panic("a defect") }), nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			w.leaves(podA)
			w.setPod(newPod("b", "n"))
			w.pass(time.Second)
			w.leaves(podB)
			require.Equal(w.t, before, w.marks(podB))
		},
		"a pod whose deletion is refused is not marked": func(w *world) {
			w.api.setFaults(every(is("delete pods"), errBrokenWebhook), nil)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			w.stays(podA)
			require.Zero(w.t, matches(w.api.took(), "patch pods"))
			require.Empty(w.t, w.marks(podA))
		},
		"a pod of a Job is marked before, since its podFailurePolicy may ask for the mark": func(w *world) {
			pod := newPod("b", "n")
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: new(true)}}
			w.setPod(pod)
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			took := w.api.took()
			require.Less(w.t, at(took, "patch pods/status default/b"), at(took, "delete pods default/b"))
			require.Equal(w.t, before, w.marks(podB))
		},
		"INV-6 a replica that does not lead any more marks nobody": func(w *world) {
			var lost atomic.Bool
			w.kill()
			w.options.Leads = func() bool { return !lost.Load() }
			w.api.setFaults(nil, once(is("delete pods"), func() error {
				lost.Store(true)
				return nil
			}))
			w.start()
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Second)
			w.leaves(podA)
			require.Empty(w.t, w.marks(podA))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPolicy(newPolicy("p", markedBy(v1alpha1.EvictionMarkWhileTerminating)))
				w.start()
				w.setPod(newPod("a", "n"))
				w.api.took()
				test(w)
			})
		})
	}
}

// at returns where a request stands among others.
func at(requests []request, want request) int {
	for i, made := range requests {
		if made == want {
			return i
		}
	}
	return len(requests)
}
