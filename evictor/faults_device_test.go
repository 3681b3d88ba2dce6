package evictor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

func TestDeviceFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"G01 DE-48 DE-50 a pod replaced between the decision and the deletion is not deleted":      deviceReplacedBeforeDelete,
		"G03 INV-3 no eviction for a rule that is gone while the watch lags":                       staleRuleGone,
		"G03 INV-3 no eviction for a rule that was changed to None while the watch lags":           staleRuleChanged,
		"G03 INV-3 no eviction for a slice whose taint is gone while the watch lags":               staleSlice,
		"G03 the answer about a rule that was deleted meanwhile does not bring it back":            lateRule,
		"G03 the answer about a slice that was deleted meanwhile does not bring it back":           lateSlice,
		"G04 a rule that flaps ten times a second evicts nobody who tolerates it for a second":     flappingRule,
		"G07 when one of two taints goes, the deadline follows the other":                          oneOfTwo,
		"G14 DE-75 a rule created anew evicts for its own taint and is counted by itself":          ruleReplaced,
		"G14 a rule created anew while the old one is read does not evict for the old one":         ruleReplacedWhileRead,
		"G16 a webhook that denies the deletion is asked again for ever, and it shows":             deviceDenied,
		"G17 a pod that a finalizer keeps terminating is deleted once":                             deviceFinalizer,
		"G19 a rule that cannot be read holds its evictions back until it can":                     ruleUnreadable,
		"G19 an API server that does not know rules says nothing about this one":                   ruleNotServed,
		"a rule that cannot be read does not hold back an eviction that another object asks for":   anotherReason,
		"I01 an API server that asks for time is given it before another object is read":           anotherReasonLater,
		"a reason that is not due yet is none because another one's object cannot be read":         anotherReasonNotYet,
		"when the most urgent taint turns out to be gone, the next is looked at before it evicts":  nextReason,
		"when every taint turns out to be gone, the pod stays":                                     noReason,
		"the taint that is due first says how the pod is marked":                                   markedBySource,
		"DE-45 a pod found terminating is not counted, for no rule either":                         deviceTerminatingAnswer,
		"DE-46 DE-47 an attempt that failed is repeated soon, and told of when it went well":       deviceRetry,
		"DE-49 what is due and cancelled while it waits leads to no request":                       deviceCancelWhileDown,
		"DE-68 I04 a pod counts once for every rule among its reasons":                             countedForEveryRule,
		"DE-75 what was counted for a rule goes with it":                                           countForgotten,
		"G03 H05 a process that was frozen looks again before it acts":                             deviceFrozen,
		"what was evicted because of a slice is told in sum on the slice, and of rules on these":   deviceSummaries,
		"DE-51 I16 U11 PE7 events are taken in without waiting while every request takes a second": handlersDoNotWait,
		"H01 H02 times of rules that are hardly meant are reported once":                           faultOddRules,
		"one look at a rule is enough for all pods within its age":                                 oneLook,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

func deviceReplacedBeforeDelete(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.api.setFaults(nil, func(req request) error {
		if is("patch pods/status")(req) {
			w.api.remove(podA)
			again := newPod("a", "clean")
			again.UID = "another"
			w.api.store(using(again, "c"))
		}
		return nil
	})
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.EqualValues(w.t, "another", w.api.pod(podA).UID)
	require.Zero(w.t, w.value("device_taint_eviction_controller_pod_deletions_total"))
	require.Zero(w.t, w.evictor.EvictedBy("r-rule-uid"))
}

func flappingRule(w *world) {
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		w.set(newClaim(name, "gpu-0", tolerated("gpu", 1), name))
		w.setPod(using(newPod(name, "n"), name))
	}
	w.start()
	for range 100 {
		rule := newRule("r", "", deviceTaint("gpu"))
		w.set(rule)
		w.pass(100 * time.Millisecond)
		w.drop(rule)
		w.pass(100 * time.Millisecond)
	}
	require.Empty(w.t, w.api.took())
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	require.Positive(w.t, w.value("tollgate_eviction_events_dropped_total"))
}

func oneOfTwo(w *world) {
	podWithDevice(w, several(tolerated("gpu", 60), tolerated("net", 30)))
	net := newRule("net", "", deviceTaint("net"))
	w.set(net)
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("gpu")))
	w.start()
	w.pass(seconds(20))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=devicetaintrule"), 0)
	w.drop(net)
	require.Zero(w.t, w.value("tollgate_evictions_pending", "source=devicetaintrule"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=resourceslice"), 0)
	w.pass(seconds(40))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	require.Zero(w.t, matches(w.deviceRecorder.took(), "Pod default/a Normal DeviceTaintManagerEviction: Cancelling"))
}

func ruleReplaced(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.leaves(podA)
	require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
	again := newRule("r", "", deviceTaint("gpu"))
	again.UID = "another"
	w.set(again)
	w.set(newClaim("d", "gpu-1", tolerated("gpu", 60), "b"))
	w.setPod(using(newPod("b", "n"), "d"))
	w.pass(seconds(61))
	w.leaves(podB)
	require.Zero(w.t, w.evictor.EvictedBy("r-rule-uid"), "there is no such rule any more")
	require.Equal(w.t, 1, w.evictor.EvictedBy("another"))
}

func deviceDenied(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.api.setFaults(every(is("delete pods"), errDenied), nil)
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	requests := w.api.took()
	require.Greater(w.t, matches(requests, "delete"), 3600/30)
	require.Less(w.t, matches(requests, "delete"), 3600/30+20)
	require.Equal(w.t, 1, matches(requests, "patch"))
	require.Equal(w.t, []string{
		"Pod default/a Warning DeviceTaintManagerEvictionHeldUp: Pod default/a has to stop using a device, and this is tried again and again: " +
			`pods "a" is forbidden: admission webhook denied the request`,
	}, w.deviceRecorder.took())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending", "source=devicetaintrule"), 0)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
	require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
}

func deviceFinalizer(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	w.leaves(podA)
	require.Len(w.t, w.api.took(), 3)
	w.set(newRule("s", "", deviceTaint("net")))
	w.update(podA, func(p *corev1.Pod) { p.Status.Message = "ending" })
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	require.InDelta(w.t, 1, w.value("device_taint_eviction_controller_pod_deletions_total"), 0)
	require.Zero(w.t, w.evictor.EvictedBy("s-rule-uid"))
}

func markedBySource(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("d", "gpu-1", tolerated("gpu", 60), "b"))
	w.setPod(using(newPod("b", "m", tolerationFor("disk", 30)), "d"))
	w.setNode("n", noExecute("disk"))
	w.setNode("m", noExecute("disk"))
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerationFor("disk", 90)} })
	w.start()
	w.pass(2 * time.Minute)
	require.Equal(w.t, "DeletionByDeviceTaintManager", tracker.PodOf(w.api.pod(podA)).Disruption.Reason)
	require.Equal(w.t, "DeletionByTaintManager", tracker.PodOf(w.api.pod(podB)).Disruption.Reason)
	require.Equal(w.t, []string{
		"Pod default/b Normal TaintManagerEviction: Marking for deletion Pod default/b",
		"Node m Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
	}, w.recorder.took())
	require.Equal(w.t, []string{
		"Pod default/a Normal DeviceTaintManagerEviction: Marking for deletion",
		"DeviceTaintRule r Normal DeviceTaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
	}, w.deviceRecorder.took())
	require.InDelta(w.t, 1, w.value("device_taint_eviction_controller_pod_deletions_total"), 0)
	require.InDelta(w.t, 1, w.value("taint_eviction_controller_pod_deletions_total"), 0)
	require.Equal(w.t, 2, w.evictor.EvictedBy("r-rule-uid"), "the rule is among the reasons of both (DE-27)")
}

func deviceTerminatingAnswer(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
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
	require.Equal(w.t, []request{"get devicetaintrules r", "patch pods/status default/a"}, w.api.took())
	require.Empty(w.t, w.deviceRecorder.took())
	require.Zero(w.t, w.value("device_taint_eviction_controller_pod_deletions_total"))
	require.Zero(w.t, w.value("device_taint_eviction_controller_pod_deletion_duration_seconds"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=terminating"), 0)
	require.Zero(w.t, w.evictor.EvictedBy("r-rule-uid"))
}

func deviceRetry(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.api.setFaults(first(3, is("delete pods"), errDown), nil)
	w.start()
	w.pass(5 * time.Millisecond)
	require.Empty(w.t, w.deviceRecorder.took())
	w.pass(100 * time.Millisecond)
	w.leaves(podA)
	require.Equal(w.t, []string{"Pod default/a Normal DeviceTaintManagerEviction: Marking for deletion"}, w.deviceRecorder.took())
	require.InDelta(w.t, 3, w.value("tollgate_eviction_retries_total"), 0)
}

func deviceCancelWhileDown(w *world) {
	podWithDevice(w, nil)
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.api.setFaults(func(r request) error {
		if strings.Contains(string(r), " pods") {
			return errDown
		}
		return nil
	}, nil)
	w.start()
	w.pass(time.Minute)
	w.drop(rule)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	w.api.setFaults(nil, nil)
	w.api.took()
	w.pass(time.Hour)
	require.Empty(w.t, w.api.took())
	w.stays(podA)
}

func countedForEveryRule(w *world) {
	podWithDevice(w, tolerated("late", 600))
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newRule("s", "gpu-0", deviceTaint("late")))
	w.set(newRule("t", "gpu-1", deviceTaint("gpu")))
	w.api.setFaults(nil, first(1, is("delete pods"), errLost))
	w.api.setLag(true)
	w.start()
	w.pass(time.Minute)
	w.leaves(podA)
	w.api.setLag(false)
	w.pass(time.Minute)
	require.Equal(w.t, 1, w.evictor.EvictedBy("r-rule-uid"))
	require.Equal(w.t, 1, w.evictor.EvictedBy("s-rule-uid"), "also when it was due later")
	require.Zero(w.t, w.evictor.EvictedBy("t-rule-uid"))
	require.InDelta(w.t, 1, w.value("device_taint_eviction_controller_pod_deletions_total"), 0)
}

func countForgotten(w *world) {
	podWithDevice(w, nil)
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	require.Equal(w.t, 1, w.evictor.EvictedBy(rule.UID))
	w.evictor.Forget(rule.UID)
	require.Zero(w.t, w.evictor.EvictedBy(rule.UID))
	require.Empty(w.t, w.evictor.state.evicted)

	for _, anew := range []bool{false, true} {
		w.api.remove(podA)
		w.setPod(using(newPod("a", "n"), "c"))
		require.Equal(w.t, 1, w.evictor.EvictedBy(rule.UID))
		if anew {
			rule = newRule("r", "", deviceTaint("gpu"))
			rule.UID = "another"
		} else {
			w.drop(rule)
		}
		w.set(rule)
		require.Empty(w.t, w.evictor.state.evicted, "whoever calls Forget need not have known the rule")
	}

	w.set(newClaim("d", "gpu-1", nil, "b"))
	w.api.setFaults(nil, once(is("delete pods"), func() error {
		w.api.remove(keyOf(rule))
		return nil
	}))
	w.setPod(using(newPod("b", "n"), "d"))
	w.pass(time.Minute)
	w.leaves(podB)
	require.Empty(w.t, w.evictor.state.evicted, "nobody would forget it")
}

func deviceSummaries(w *world) {
	for i := range 300 {
		name := fmt.Sprintf("p%03d", i)
		w.set(newClaim(name, "gpu-0", nil, name))
		w.setPod(using(newPod(name, "n"), name))
	}
	w.start()
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("gpu"), deviceTaint("net")))
	w.pass(seconds(1))
	events := w.deviceRecorder.took()
	require.Equal(w.t, eventBurst, matches(events, "Pod "))
	require.InDelta(w.t, 300-eventBurst, w.value("tollgate_eviction_events_dropped_total"), 0)
	require.Equal(w.t, "ResourceSlice s Normal DeviceTaintManagerEviction: Evicted 300 pods because of a NoExecute taint", events[len(events)-1])
	require.Equal(w.t, corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice", Name: "s", UID: "s-slice-uid", FieldPath: "spec{gpu:NoExecute}"}, w.deviceRecorder.refs[len(w.deviceRecorder.refs)-1])
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newClaim("late", "gpu-1", nil, "late"))
	w.setPod(using(newPod("late", "n"), "late"))
	w.pass(seconds(10))
	require.Equal(w.t, corev1.ObjectReference{APIVersion: "resource.k8s.io/v1", Kind: "DeviceTaintRule", Name: "r", UID: "r-rule-uid", FieldPath: "spec{gpu:NoExecute}"}, w.deviceRecorder.refs[len(w.deviceRecorder.refs)-1])
	w.pass(time.Minute)
	require.Empty(w.t, w.evictor.announce.summaries)
	require.Zero(w.t, w.evictor.confirm.Len())
}

// handlersDoNotWait tells of everything from this goroutine, as informers do from
// theirs. In the bubble, time passes only where somebody waits.
func handlersDoNotWait(w *world) {
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		w.set(newClaim(name, "gpu-0", nil, name))
		w.setPod(using(newPod(name, "n"), name))
	}
	w.options.Carriers = slowCarriers{typedCarriers{Client: w.api.client.ResourceV1()}}
	w.start()
	w.evictor.effector = slowEffector{w.evictor.effector}
	w.api.store(newRule("r", "", deviceTaint("gpu")))
	w.pass(500 * time.Millisecond)
	began := time.Now()
	w.api.store(newRule("s", "", deviceTaint("net")))
	w.api.store(newSlice("s", 1, "gpu-0", deviceTaint("gpu")))
	w.api.store(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{noExecute("disk")}}})
	w.api.store(newClaim("another", "gpu-0", nil, "p0", "p1"))
	w.api.store(newPod("another", "n"))
	w.evictor.Forget("nobody")
	require.Zero(w.t, w.evictor.EvictedBy("nobody"))
	require.Zero(w.t, time.Since(began), "a handler waited")
	w.pass(time.Minute)
	w.leaves("default/p99")
	w.leaves("default/another")
}

// slowCarriers and slowEffector take a second for everything. The fake client
// itself cannot be slow: it answers one request at a time.
type slowCarriers struct{ Carriers }

func (c slowCarriers) ReadRule(ctx context.Context, name string) (tracker.Rule, error) {
	time.Sleep(time.Second)
	return c.Carriers.ReadRule(ctx, name)
}

func (c slowCarriers) ReadSlice(ctx context.Context, name string) (tracker.Slice, error) {
	time.Sleep(time.Second)
	return c.Carriers.ReadSlice(ctx, name)
}

type slowEffector struct{ act.Effector }

func (s slowEffector) Evict(ctx context.Context, what act.Order) (act.Attempt, error) {
	time.Sleep(time.Second)
	return s.Effector.Evict(ctx, what)
}
