package evictor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
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
		"G16 NE-18 a webhook that denies the deletion is asked again for ever, and it shows":      faultDenied,
		"G17 NE-19 a pod that a finalizer keeps terminating is deleted once":                      faultFinalizer,
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
		"H03 a stamp that conflicts is tried again on what stands there then":                     faultStampConflict,
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
	require.Equal(w.t, []request{"get nodes n"}, w.api.took())
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
		"Pod default/a Warning TaintManagerEvictionHeldUp: Pod default/a has to leave its node, but its deletion is not accepted (denied); trying again",
	}, w.recorder.took())
	require.Greater(w.t, w.value("tollgate_eviction_retries_total", "reason=denied"), 100.0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)

	w.api.setFaults(nil, nil)
	w.pass(retryMax)
	w.leaves(podA)
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
	w.pass(retryMax)
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

func faultStamp(w *world) {
	w.setNode("n")
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(700 * time.Millisecond)
	seen := time.Now().Truncate(time.Second)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	other := bare
	other.Key, other.Effect = "maintenance", corev1.TaintEffectNoSchedule
	w.setNode("n", other, bare)
	require.True(w.t, w.api.node("n").Spec.Taints[1].TimeAdded.Time.Equal(seen))
	require.Nil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
	require.InDelta(w.t, 1, w.value("tollgate_taints_stamped_total"), 0)
	w.pass(seconds(50))
	w.restart()
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	require.Equal(w.t, 1, matches(w.api.took(), "patch nodes"))
}

func faultStampLate(w *world) {
	w.setNode("n")
	w.start()
	w.api.setFaults(every(is("patch nodes"), errDown), nil)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	seen := time.Now()
	w.setNode("n", bare)
	w.pass(10 * time.Minute)
	require.Nil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
	w.api.setFaults(nil, nil)
	w.pass(retryMax)
	require.True(w.t, w.api.node("n").Spec.Taints[0].TimeAdded.Time.Equal(seen))
}

func faultStampConflict(w *world) {
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	raced := false
	w.api.setFaults(func(req request) error {
		if is("patch nodes")(req) && !raced {
			raced = true
			n := w.api.node("n")
			n.Spec.Taints = append([]corev1.Taint{noExecute("disk")}, n.Spec.Taints...)
			w.api.store(n)
		}
		return nil
	}, nil)
	w.start()
	since := time.Now()
	w.setNode("n", bare)
	w.pass(seconds(1))
	taints := w.api.node("n").Spec.Taints
	require.Len(w.t, taints, 2)
	require.Equal(w.t, "gpu", taints[1].Key)
	require.True(w.t, taints[1].TimeAdded.Time.Equal(since))
	require.InDelta(w.t, 1, w.value("tollgate_taints_stamped_total"), 0)
	w.setNode("gone", bare)
	w.api.remove("gone")
	w.pass(time.Hour)
	require.Less(w.t, len(w.api.took()), 10)
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

func faultOddTimes(w *world) {
	w.setNode("n")
	w.setNode("m")
	w.start()
	ahead, behind := noExecute("gpu"), noExecute("gpu")
	ahead.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Hour)))
	behind.TimeAdded = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	w.setNode("n", ahead)
	w.setNode("m", behind)
	w.setNode("n", ahead, noExecute("disk"))
	w.pass(time.Minute)
	require.Equal(w.t, []string{
		"Node n Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the future: 2000-01-01T01:00:00Z",
		"Node m Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the past: 1999-12-31T23:00:00Z",
	}, w.recorder.took())
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=future"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=past"), 0)
	w.setNode("n")
	w.setNode("n", ahead)
	require.Len(w.t, w.recorder.took(), 1)
	w.restart()
	require.Len(w.t, w.recorder.took(), 1, "a taint that was there before may well be old, and is never from the future")
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
	w.pass(retryMax)
	w.leaves(podA)
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
	require.Equal(w.t, DefaultEventBurst, matches(events, "Pod "))
	require.InDelta(w.t, 300-DefaultEventBurst, w.value("tollgate_eviction_events_dropped_total"), 0)
	require.Equal(w.t, "Node n Normal TaintManagerEviction: Evicted 300 pods because of NoExecute taint disk:NoExecute", events[len(events)-1])
	w.setPod(newPod("late", "n"))
	w.pass(seconds(8))
	require.Zero(w.t, matches(w.recorder.took(), "Node "))
	w.pass(seconds(2))
	require.Equal(w.t, []string{"Node n Normal TaintManagerEviction: Evicted 1 pod because of NoExecute taint disk:NoExecute"}, w.recorder.took())
	w.pass(time.Minute)
	require.Empty(w.t, w.evictor.announce.tallies)
	require.Empty(w.t, w.evictor.confirm.read)
}

func faultLastWords(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.start()
	require.Len(w.t, w.recorder.took(), 1)
	w.kill()
	require.Equal(w.t, []string{"Node n Normal TaintManagerEviction: Evicted 1 pod because of NoExecute taint gpu:NoExecute"}, w.recorder.took())
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

// offset is a clock that runs ahead of, or behind, the machine's.
type offset struct {
	clock.RealClock

	by time.Duration
}

func (o offset) Now() time.Time { return o.RealClock.Now().Add(o.by) }

func TestH04(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		t.Run("H04 deadlines are told by the clock of the API server, which differs by "+by.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.options.Clock = offset{by: by}
				gpu := noExecute("gpu")
				gpu.TimeAdded = new(metav1.NewTime(time.Now().Add(by)))
				w.setNode("n", gpu)
				pod := newPod("a", "n", tolerationFor("gpu", 60))
				pod.Status.Conditions[0].LastTransitionTime = *gpu.TimeAdded
				w.setPod(pod)
				w.start()
				w.pass(seconds(60))
				w.stays(podA)
				w.pass(seconds(1))
				w.leaves(podA)
			})
		})
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	status := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReasonUnknown}}
	}
	for _, test := range []struct {
		name string
		err  error
		want Failure
	}{
		{"no error", nil, NoFailure},
		{"the object is gone", apierrors.NewNotFound(podResource, "a"), NotFound},
		{"a precondition or a version does not hold", errConflict, Conflict},
		{"the API server is busy", errBusy, Throttled},
		{"a webhook or RBAC says no", errDenied, Denied},
		{"the token is no good", apierrors.NewUnauthorized("who"), Denied},
		{"a webhook says no with a code of its own", status(http.StatusTeapot), Denied},
		{"the object is not valid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), Invalid},
		{"the request is not valid", apierrors.NewBadRequest("what"), Invalid},
		{"the API server ran out of time", apierrors.NewTimeoutError("slow", 1), Timeout},
		{"the storage ran out of time", apierrors.NewServerTimeout(podResource, "get", 1), Timeout},
		{"the client ran out of time", errLost, Timeout},
		{"the client was stopped", context.Canceled, Timeout},
		{"an internal error", errDown, Unavailable},
		{"no server behind the load balancer", apierrors.NewServiceUnavailable("gone"), Unavailable},
		{"a server error of an unknown kind", status(http.StatusBadGateway), Unavailable},
		{"no connection", errors.New("dial tcp: no route to host"), Unavailable},
		{"a wrapped error is what it wraps", fmt.Errorf("delete pod: %w", errConflict), Conflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, classify(test.err))
		})
	}
	require.True(t, Timeout.Ambiguous())
	require.True(t, Unavailable.Ambiguous())
	require.False(t, Conflict.Ambiguous())
	require.True(t, Throttled.transient())
	require.False(t, Denied.transient())
}
