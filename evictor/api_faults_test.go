package evictor

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

func faultDenied(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(every(is("delete pods"), errDenied), nil)
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	requests := w.api.took()
	require.Greater(w.t, matches(requests, "delete"), 3600/30)
	require.Less(w.t, matches(requests, "delete"), 3600/30+20)
	require.Equal(w.t, 1, matches(requests, "patch"), "the condition stands after the first attempt")
	require.Equal(w.t, []string{
		"Pod default/a Warning TaintManagerEvictionHeldUp: Pod default/a has to leave its node, and this is tried again and again: " +
			`pods "a" is forbidden: admission webhook denied the request`,
	}, w.recorder.took())
	require.Greater(w.t, w.value("tollgate_eviction_retries_total", "reason=denied"), 100.0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
	require.InDelta(w.t, 3600, w.value("tollgate_eviction_overdue_seconds"), 5)

	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
	require.Zero(w.t, w.value("tollgate_eviction_overdue_seconds"))
	require.InDelta(w.t, 1, w.value("taint_eviction_controller_pod_deletions_total"), 0)
}

func faultFinalizer(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setLag(true)
	w.start()
	w.leaves(podA)
	w.evictor.PodsChanged(w.tracker.PodsOn("n"))
	w.pass(time.Minute)
	require.Len(w.t, w.api.took(), 3, "the watch need not have told of it")
	w.api.setLag(false)
	w.setNode("n", noExecute("gpu"), noExecute("disk"))
	w.update(podA, func(p *corev1.Pod) { p.Status.Message = "ending" })
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	require.InDelta(w.t, 1, w.value("taint_eviction_controller_pod_deletions_total"), 0)
	w.restart()
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
}

func faultRetryAfter(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(first(1, is("patch pods"), errBusy), nil)
	w.start()
	w.pass(seconds(6))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	require.InDelta(w.t, 1, w.value("tollgate_eviction_retries_total", "reason=throttled"), 0)
	require.Equal(w.t, 2, matches(w.api.took(), "patch"))
}

func faultOutage(w *world) {
	w.setNode("n", noExecute("gpu"))
	for i := range 50 {
		w.setPod(newPod(fmt.Sprintf("p%d", i), "n"))
	}
	w.api.setFaults(every(is(""), errDown), nil)
	w.start()
	w.pass(10 * time.Minute)
	require.InDelta(w.t, 50, w.value("tollgate_evictions_pending"), 0)
	require.LessOrEqual(w.t, len(w.api.took()), 50*(600/30+15))
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	for i := range 50 {
		w.leaves(fmt.Sprintf("default/p%d", i))
	}
	require.InDelta(w.t, 50, w.value("taint_eviction_controller_pod_deletions_total"), 0)
}

func faultRecovery(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setNode("m")
	for i := range 200 {
		w.setPod(newPod(fmt.Sprintf("p%d", i), "n"))
	}
	w.api.setFaults(every(is(""), errDown), nil)
	w.start()
	w.pass(5*time.Minute + seconds(3))
	w.api.setFaults(nil, nil)
	w.setPod(newPod("next", "m"))
	w.setNode("m", noExecute("gpu"))
	w.pass(seconds(1))
	w.leaves("default/next")
	for i := range 200 {
		w.leaves(fmt.Sprintf("default/p%d", i))
	}
	require.InDelta(w.t, 201, w.value("taint_eviction_controller_pod_deletions_total"), 0)
}

func faultLostDelete(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(nil, first(1, is("delete pods"), errLost))
	w.api.setLag(true)
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	w.api.setLag(false)
	w.pass(time.Minute)
	require.InDelta(w.t, 1, w.value("taint_eviction_controller_pod_deletions_total"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=evicted"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total"), 0)
}

func faultLostDeleteGone(w *world) {
	w.api.graceful = false
	faultLostDelete(w)
}

func faultLostMark(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(nil, first(1, is("patch pods"), errLost))
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	require.Equal(w.t, 1, matches(w.api.took(), "patch"))
}

func faultMarkConflicts(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(every(is("patch pods"), errConflict), nil)
	w.start()
	w.pass(seconds(1))
	w.leaves(podA)
	requests := w.api.took()
	require.Equal(w.t, markTries, matches(requests, "patch"))
	require.Equal(w.t, 1, matches(requests, "delete"))
}

func faultMarkDenied(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(every(is("patch pods"), errDenied), nil)
	w.start()
	w.pass(seconds(1))
	w.leaves(podA)
	require.Equal(w.t, markTries, matches(w.api.took(), "patch"))
}

func faultMarkDown(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(first(2*markTries, is("patch pods"), errDown), nil)
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	require.NotNil(w.t, tracker.PodOf(w.api.pod(podA)).Disruption)
}

// faultRestless has another client write the status before each of the first ten
// requests that would change the pod, while the watch tells of nothing.
func faultRestless(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	writes := 0
	w.api.setFaults(func(req request) error {
		if writes < 10 && (is("patch pods")(req) || is("delete pods")(req)) {
			writes++
			pod := w.api.pod(podA)
			pod.Status.Message += "."
			w.api.store(pod)
		}
		return nil
	}, nil)
	w.start()
	w.api.setLag(true)
	w.pass(time.Minute)
	w.leaves(podA)
	require.Equal(w.t, 10, writes)
	require.InDelta(w.t, 1, w.value("taint_eviction_controller_pod_deletions_total"), 0)
}

func faultOwnWrites(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(first(1, is("delete pods"), errDown), nil)
	w.api.setLag(true)
	w.start()
	w.pass(seconds(1))
	w.leaves(podA)
	require.Equal(w.t, []request{
		"get nodes n", "patch pods/status default/a", "delete pods default/a", "delete pods default/a",
	}, w.api.took())
}

func faultTerminatingAnswer(w *world) {
	w.setNode("n", noExecute("gpu"))
	pod := newPod("a", "n")
	w.setPod(pod)
	w.api.setFaults(func(req request) error {
		if is("patch pods")(req) {
			w.api.mu.Lock()
			defer w.api.mu.Unlock()
			w.api.objects[podA].(*corev1.Pod).DeletionTimestamp = new(metav1.Now())
		}
		return nil
	}, nil)
	w.start()
	w.pass(time.Minute)
	require.Equal(w.t, []request{"get nodes n", "patch pods/status default/a"}, w.api.took())
	require.Empty(w.t, w.recorder.took())
	require.Zero(w.t, w.value("taint_eviction_controller_pod_deletions_total"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=terminating"), 0)
}

func faultCancelWhileDown(w *world) {
	w.setNode("n", noExecute("gpu"))
	for i := range 100 {
		w.setPod(newPod(fmt.Sprintf("p%d", i), "n"))
	}
	w.api.setFaults(every(is("patch pods"), errDown), nil)
	w.start()
	w.pass(time.Minute)
	w.setNode("n")
	w.pass(0)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	w.api.setFaults(nil, nil)
	w.api.took()
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
}

func faultNodeUnreadable(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setNode("m", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.setPod(newPod("b", "m"))
	w.api.setFaults(every(is("get nodes n"), errDenied), nil)
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	w.leaves(podB)
	require.Positive(w.t, w.value("tollgate_eviction_retries_total", "reason=denied"))
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
}
