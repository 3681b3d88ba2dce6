package evictor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	errConflict = apierrors.NewConflict(podResource, "a", errors.New("changed"))
	errDenied   = apierrors.NewForbidden(podResource, "a", errors.New("admission webhook denied the request"))
	errBusy     = apierrors.NewTooManyRequests("busy", 7)
	errDown     = apierrors.NewInternalError(errors.New("no storage"))
	errLost     = fmt.Errorf("read answer: %w", context.DeadlineExceeded)
)

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"G01 a pod replaced between the decision and the deletion is not deleted":                 faultReplacedBeforeDelete,
		"G03 a pod is not evicted for a taint that is gone while the watch of nodes lags":         faultStaleNode,
		"G03 a node that is gone while the watch lags evicts nobody":                              faultStaleNodeGone,
		"G05 a toleration appended while the deletion is on its way saves the pod":                faultTolerationDuringPatch,
		"G06 tolerationSeconds lengthened and shortened again count from the taint":               faultLengthenShorten,
		"G08 finished, mirror and terminating pods are left alone":                                faultSkipped,
		"G08 a pod that finishes while it waits stays":                                            faultFinishes,
		"NE-18 G16 a webhook that denies the deletion is asked again for ever, and it shows":      faultDenied,
		"NE-19 G17 a pod that a finalizer keeps terminating is deleted once":                      faultFinalizer,
		"I01 an API server that asks for time is given it":                                        faultRetryAfter,
		"I02 NE-18 one that fails for ten minutes loses no eviction":                              faultOutage,
		"I03 when it is back, what waits does not wait any longer":                                faultRecovery,
		"I04 a deletion whose answer is lost counts once":                                         faultLostDelete,
		"I04 a deletion whose answer is lost counts once, when the pod is gone":                   faultLostDeleteGone,
		"I04 a mark whose answer is lost is not set again":                                        faultLostMark,
		"I05 a status that keeps conflicting does not block the deletion":                         faultMarkConflicts,
		"I05 a condition that is refused does not block the deletion":                             faultMarkDenied,
		"I05 a pod that changes all the time is evicted":                                          faultRestless,
		"I05 a condition that cannot be set while the API server is down is set afterwards":       faultMarkDown,
		"I11 nothing is decided before everything is known":                                       faultNotSynced,
		"I13 a deletion that has to be repeated needs no second mark":                             faultOwnWrites,
		"DE-45 a pod found terminating is not counted":                                            faultTerminatingAnswer,
		"H03 a taint without a time is given the one at which it was seen, once":                  faultStamp,
		"H03 a stamp that has to wait is still the time at which the taint was seen":              faultStampLate,
		"H03 a stamp waits no longer than any other attempt":                                      faultStampDelayed,
		"H03 a stamp that conflicts is tried again on what stands there then":                     faultStampConflict,
		"H03 a node that was created anew does not get the time of the one before":                faultStampAnew,
		"H05 a process that was frozen looks again before it acts":                                faultFrozen,
		"H01 H02 times that are hardly meant are reported once":                                   faultOddTimes,
		"J11 when the taint goes, evictions that wait for the API server are not carried out":     faultCancelWhileDown,
		"a node that cannot be read holds its evictions back, and no others":                      faultNodeUnreadable,
		"a stopped evictor asks for nothing more":                                                 faultStop,
		"an evictor that never gets its caches stops when it is told to":                          faultStopBeforeSync,
		"what was evicted last is told of before the end":                                         faultLastWords,
		"evictions of many pods are told in sum":                                                  faultManyEvents,
		"NE-25 many pods at once are evicted by a bounded number of workers, each asked for once": faultMany,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

func faultReplacedBeforeDelete(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(nil, func(req request) error {
		if is("patch pods/status")(req) {
			w.api.remove(podA)
			again := newPod("a", "clean")
			again.UID = "another"
			w.api.store(again)
		}
		return nil
	})
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.EqualValues(w.t, "another", w.api.pod(podA).UID)
	require.Zero(w.t, w.value("taint_eviction_controller_pod_deletions_total"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=gone"), 0)
}

func faultStaleNode(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("b", "n", tolerationFor("gpu", 20)))
	w.start()
	w.api.setLag(true)
	w.setNode("n")
	w.api.setLag(false)
	w.pass(seconds(30))
	w.stays(podB)

	gpu := noExecute("gpu")
	w.setNode("n", gpu)
	w.pass(seconds(30))
	w.leaves(podB)
	w.pass(seconds(30))
	w.api.nodes.clear()
	w.setNode("n")
	w.api.took()
	w.setPod(newPod("a", "n"))
	w.pass(time.Minute)
	w.stays(podA)
	require.Equal(w.t, []request{"get nodes n"}, w.api.took())
}

func faultStaleNodeGone(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.start()
	w.api.nodes.clear()
	w.api.remove("n")
	w.setPod(newPod("a", "n"))
	w.pass(time.Minute)
	w.stays(podA)
	require.Equal(w.t, []request{"get nodes n", "get nodes n"}, w.api.took())
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func faultTolerationDuringPatch(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(func(req request) error {
		if is("delete pods")(req) {
			pod := w.api.pod(podA)
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, forever("gpu"))
			w.api.store(pod)
		}
		return nil
	}, nil)
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.Equal(w.t, 1, matches(w.recorder.took(), "Pod default/a Normal TaintManagerEviction: Cancelling"))
}

func faultLengthenShorten(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	set := func(n int64) {
		w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = &n })
	}
	w.pass(seconds(10))
	set(600)
	w.pass(seconds(100))
	w.stays(podA)
	set(120)
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func faultSkipped(w *world) {
	w.setNode("n", noExecute("gpu"))
	for name, change := range map[string]func(*corev1.Pod){
		"succeeded":   func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":      func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"mirror":      func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		"terminating": func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
	} {
		pod := newPod(name, "n")
		change(pod)
		w.setPod(pod)
	}
	w.start()
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	require.Empty(w.t, w.recorder.took())
}

func faultFinishes(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(seconds(30))
	w.update(podA, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.pass(time.Hour)
	w.stays(podA)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func faultNotSynced(w *world) {
	var ready atomic.Bool
	w.options.Synced = ready.Load
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.start()
	w.setPod(newPod("b", "n"))
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	ready.Store(true)
	w.pass(seconds(1))
	w.leaves(podA)
	w.leaves(podB)
}

// faultFrozen stops the world of the evictor, not the one around it: it wakes
// when the eviction is long due and the watch has told of nothing.
func faultFrozen(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setNode("m", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.setPod(newPod("b", "m"))
	w.start()
	w.leaves(podB)
	w.api.setLag(true)
	w.setNode("n")
	w.pass(30 * time.Minute)
	w.stays(podA)
	requests := w.api.took()
	require.Equal(w.t, 1, matches(requests, "get nodes n"))
	require.Zero(w.t, matches(requests, "patch pods/status default/a"))
}

func faultStop(w *world) {
	w.setNode("n", noExecute("gpu"))
	for i := range 100 {
		w.setPod(newPod(fmt.Sprintf("p%d", i), "n"))
	}
	w.api.setFaults(every(is("patch pods"), errDown), nil)
	w.start()
	w.pass(time.Minute)
	w.kill()
	w.api.took()
	w.setPod(newPod("late", "n"))
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
}

func faultStopBeforeSync(w *world) {
	w.options.Synced = func() bool { return false }
	w.start()
	w.pass(time.Hour)
	w.kill()
	require.Empty(w.t, w.api.took())
}

func faultManyEvents(w *world) {
	w.setNode("n")
	for i := range 300 {
		w.setPod(newPod(fmt.Sprintf("p%03d", i), "n"))
	}
	w.start()
	w.setNode("n", noExecute("gpu"), noExecute("disk"))
	w.pass(seconds(1))
	events := w.recorder.took()
	require.Equal(w.t, eventBurst, matches(events, "Pod "))
	require.InDelta(w.t, 300-eventBurst, w.value("tollgate_eviction_events_dropped_total"), 0)
	require.Equal(w.t, "Node n Normal TaintManagerEviction: Evicted 300 pods because of a NoExecute taint", events[len(events)-1])
	w.setPod(newPod("late", "n"))
	w.pass(seconds(8))
	require.Zero(w.t, matches(w.recorder.took(), "Node "))
	w.pass(seconds(2))
	require.Equal(w.t, []string{"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint"}, w.recorder.took())
	w.pass(time.Minute)
	require.Empty(w.t, w.evictor.announce.summaries)
	require.Zero(w.t, w.evictor.confirm.Len())
}

func faultLastWords(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.start()
	require.Len(w.t, w.recorder.took(), 1)
	w.kill()
	require.Equal(w.t, []string{"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint"}, w.recorder.took())
}

func faultMany(w *world) {
	for n := range 20 {
		w.setNode(fmt.Sprintf("n%d", n))
		for i := range 50 {
			w.setPod(newPod(fmt.Sprintf("p%d-%d", n, i), fmt.Sprintf("n%d", n)))
		}
	}
	w.start()
	for n := range 20 {
		w.setNode(fmt.Sprintf("n%d", n), noExecute("gpu"))
	}
	w.pass(seconds(1))
	requests := w.api.took()
	require.Equal(w.t, 1000, matches(requests, "patch pods/status"))
	require.Equal(w.t, 1000, matches(requests, "delete pods"))
	require.Equal(w.t, 20, matches(requests, "get nodes"))
	require.Len(w.t, requests, 2020)
	require.InDelta(w.t, 1000, w.value("taint_eviction_controller_pod_deletions_total"), 0)
	require.InDelta(w.t, 1000, w.value("tollgate_eviction_lateness_seconds"), 0)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}
