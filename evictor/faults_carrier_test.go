package evictor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// The tests of this file are about what the objects that carry the taints of
// devices turn out to be when they are looked at. They are run by TestDeviceFaults.

func staleRuleGone(w *world) {
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.api.devices = nil
	w.drop(rule)
	comeUnseen(w)
	require.Equal(w.t, []request{"get devicetaintrules r", "get devicetaintrules r"}, w.api.took())
	require.Empty(w.t, w.tracker.Rules())
}

// comeUnseen has pod a show up with its device, where nobody hears of slices and
// rules any more.
func comeUnseen(w *world) {
	w.t.Helper()
	w.evictor.PodsChanged(w.tracker.SetClaim(tracker.ClaimOf(newClaim("c", "gpu-0", nil, "a"))))
	w.setPod(using(newPod("a", "n"), "c"))
	w.pass(time.Minute)
	w.stays(podA)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func staleRuleChanged(w *world) {
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.api.devices = nil
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNone
	w.set(rule)
	comeUnseen(w)
	require.Equal(w.t, []request{"get devicetaintrules r"}, w.api.took())
}

func staleSlice(w *world) {
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("gpu")))
	w.start()
	w.api.devices = nil
	w.set(newSlice("s", 1, "gpu-0"))
	comeUnseen(w)
	require.Equal(w.t, []request{"get resourceslices s"}, w.api.took())
}

func lateRule(w *world) {
	podWithDevice(w, nil)
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.api.setFaults(nil, once(is("get devicetaintrules r"), func() error {
		w.api.remove(keyOf(rule))
		return nil
	}))
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []request{"get devicetaintrules r"}, w.api.took())
	require.Empty(w.t, w.tracker.Rules())
}

func lateSlice(w *world) {
	podWithDevice(w, nil)
	slice := newSlice("s", 1, "gpu-0", deviceTaint("gpu"))
	w.set(slice)
	w.api.setFaults(nil, once(is("get resourceslices s"), func() error {
		w.api.remove(keyOf(slice))
		return nil
	}))
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []request{"get resourceslices s"}, w.api.took())
	require.Empty(w.t, w.tracker.UIDOf(tracker.Source{Kind: tracker.SourceSlice, Name: "s"}))
}

func ruleReplacedWhileRead(w *world) {
	podWithDevice(w, tolerated("gpu", 60))
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.api.setLag(true)
	again := newRule("r", "gpu-1", deviceTaint("gpu"))
	again.UID = "another"
	w.api.remove(keyOf(rule))
	w.set(again)
	w.pass(time.Hour)
	w.stays(podA)
	w.api.setLag(false)
	w.pass(time.Hour)
	w.stays(podA)
	known, ok := w.tracker.Rule("r")
	require.True(w.t, ok)
	require.EqualValues(w.t, "another", known.UID)
}

func ruleUnreadable(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newRule("other", "gpu-1", deviceTaint("gpu")))
	w.set(newClaim("d", "gpu-1", tolerated("gpu", 0), "b"))
	w.api.setFaults(every(is("get devicetaintrules r"), errDenied), nil)
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.Positive(w.t, w.value("tollgate_eviction_retries_total", "reason=denied"))
	require.Less(w.t, len(w.api.took()), 20)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
}

// errNotServed is what an API server says that has never heard of a resource.
var errNotServed = apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "r", "404 page not found", 0, true)

func ruleNotServed(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.api.setFaults(every(is("get devicetaintrules r"), errNotServed), nil)
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.Equal(w.t, []string{"r"}, w.tracker.Rules())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	w.leaves(podA)
}

func anotherReason(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.set(newRule("s", "", deviceTaint("gpu")))
	w.setNode("n", noExecute("disk"))
	w.api.setFaults(func(req request) error {
		switch req {
		case "get devicetaintrules r":
			return errDenied
		case "get devicetaintrules s":
			return errDown
		}
		return nil
	}, nil)
	w.start()
	w.leaves(podA)
	require.Equal(w.t, []request{
		"get devicetaintrules r", "get devicetaintrules s", "get nodes n", "patch pods/status default/a", "delete pods default/a",
	}, w.api.took())
	require.Equal(w.t, "DeletionByTaintManager", tracker.PodOf(w.api.pod(podA)).Disruption.Reason)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "source=node", "outcome=evicted"), 0)
	w.pass(announceTick)
	require.Empty(w.t, w.deviceRecorder.took())
	require.Equal(w.t, []string{
		"Pod default/a Normal TaintManagerEviction: Marking for deletion Pod default/a",
		"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
	}, w.recorder.took())
}

// anotherReasonNotYet has a pod wait for its node although its device, of which
// nothing is known for sure, is due.
func anotherReasonNotYet(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.setNode("n", noExecute("disk"))
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerationFor("disk", 60)} })
	w.api.setFaults(every(is("get devicetaintrules"), errDenied), nil)
	w.start()
	w.pass(seconds(60))
	w.stays(podA)
	require.Zero(w.t, matches(w.api.took(), "get nodes"))
	w.pass(controller.RetryMax)
	w.leaves(podA)
}

// anotherReasonLater is for failures after which nothing else is tried.
func anotherReasonLater(w *world) {
	podWithDevice(w, nil)
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.setNode("n", noExecute("disk"))
	w.api.setFaults(every(is("get devicetaintrules"), errBusy), nil)
	w.start()
	w.stays(podA)
	require.Equal(w.t, []request{"get devicetaintrules r"}, w.api.took())
	w.api.setFaults(nil, nil)
	w.pass(seconds(7))
	w.leaves(podA)
}

func nextReason(w *world) {
	podWithDevice(w, nil)
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.set(newSlice("s", 1, "gpu-0", deviceTaint("gpu")))
	w.api.setLag(true)
	w.api.setFaults(once(is("get devicetaintrules r"), func() error {
		w.api.remove(keyOf(rule))
		return nil
	}), nil)
	w.start()
	w.leaves(podA)
	require.Equal(w.t, []request{
		"get devicetaintrules r", "get devicetaintrules r", "get resourceslices s", "patch pods/status default/a", "delete pods default/a",
	}, w.api.took())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "source=resourceslice"), 0)
	require.Zero(w.t, w.evictor.EvictedBy("r-rule-uid"))
}

func noReason(w *world) {
	podWithDevice(w, nil)
	rule, slice := newRule("r", "", deviceTaint("gpu")), newSlice("s", 1, "gpu-0", deviceTaint("gpu"))
	w.set(rule)
	w.set(slice)
	w.api.setFaults(once(is("get devicetaintrules r"), func() error {
		w.api.setLag(true)
		w.api.remove(keyOf(rule))
		w.api.remove(keyOf(slice))
		return nil
	}), nil)
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []request{
		"get devicetaintrules r", "get devicetaintrules r", "get resourceslices s", "get resourceslices s",
	}, w.api.took())
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func deviceFrozen(w *world) {
	w.set(newClaim("c", "gpu-0", tolerated("gpu", 60), "a"))
	w.setPod(using(newPod("a", "n"), "c"))
	rule := newRule("r", "", deviceTaint("gpu"))
	w.set(rule)
	w.start()
	w.api.setLag(true)
	w.api.remove(keyOf(rule))
	w.pass(30 * time.Minute)
	w.stays(podA)
	require.Equal(w.t, []request{"get devicetaintrules r", "get devicetaintrules r"}, w.api.took())
}

func oneLook(w *world) {
	w.set(newRule("r", "", deviceTaint("gpu")))
	w.start()
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		w.set(newClaim(name, "gpu-0", nil, name))
		w.setPod(using(cameBefore(newPod(name, "n")), name))
		w.leaves("default/" + name)
		w.pass(400 * time.Millisecond)
	}
	require.Equal(w.t, 1, matches(w.api.took(), "get"))
	w.pass(DefaultMaxAge)
	w.set(newClaim("late", "gpu-0", nil, "late"))
	w.setPod(using(newPod("late", "n"), "late"))
	require.Equal(w.t, 1, matches(w.api.took(), "get"))
}

// cameBefore returns pod as if it had been bound a minute ago.
func cameBefore(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	return pod
}

// TestG03 has a pod come after the taint is gone, which the watch of nodes does not say.
func TestG03(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{
		"G03 U3 an answer from before a pod came is not good for it":                     2 * time.Second,
		"G03 U3 nor is one that may be from before, in the second in which the pod came": 200 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.setPod(newPod("a", "n"))
				w.start()
				w.setNode("n", noExecute("gpu"))
				w.pass(100 * time.Millisecond)
				w.leaves(podA)
				w.api.freezeNodes()
				w.setNode("n")
				w.pass(after)
				w.setPod(newPod("b", "n"))
				w.pass(time.Hour)
				w.stays(podB)
			})
		})
	}
}

// freezeNodes has nobody be told of nodes any more.
func (f *fakeAPI) freezeNodes() { f.nodes.clear() }

// brokenCarriers fails to read anything.
type brokenCarriers struct{}

var errBroken = errors.New("broken")

func (brokenCarriers) ReadSlice(context.Context, string) (tracker.Slice, error) {
	return tracker.Slice{}, errBroken
}

func (brokenCarriers) ReadRule(context.Context, string) (tracker.Rule, error) {
	return tracker.Rule{}, errBroken
}

func TestCarriersAreAsked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.options.Carriers = brokenCarriers{}
		podWithDevice(w, nil)
		w.set(newRule("r", "", deviceTaint("gpu")))
		w.start()
		w.pass(time.Minute)
		w.stays(podA)
		require.Empty(w.t, w.api.took())
		require.Positive(w.t, w.value("tollgate_eviction_retries_total", "reason=unavailable"))
	})
}
