package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The tests of this file run the whole evictor against an API server of their
// own. They are named after the rules of Kubernetes' controller for node taints;
// where ours differs on purpose, the name says what ours does. The rules that are
// about values alone are in decide_test.go, those about what is known of nodes
// and pods in the tracker's tests.

const (
	podA = "default/a"
	podB = "default/b"
)

func TestParity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"NE-02 untolerated leaves at once, tolerated for a while later, tolerated for ever or elsewhere never": parityWhoLeaves,
		"NE-06 removing the taint that is tolerated for a while cancels":                                       parityRemoveFinite,
		"NE-07 a restart does not start the clock again":                                                       parityRestart,
		"NE-08 a lengthened toleration lengthens the stay":                                                     parityLengthen,
		"NE-09 a shortened toleration shortens the stay":                                                       parityShorten,
		"NE-09 a second taint with a shorter toleration shortens the stay":                                     paritySecondTaint,
		"NE-09 G07 removing the taint with the shorter toleration leaves the longer":                           parityRemoveShorter,
		"NE-10 removing the taint cancels with an event":                                                       parityCancel,
		"NE-10 G05 a toleration without end that comes first cancels":                                          parityTolerateForever,
		"NE-10 a toleration that goes away means leaving at once":                                              parityUntolerate,
		"NE-12 a pod that shows up after the taint leaves by its own event":                                    parityLatePod,
		"NE-13 heartbeats and status updates lead to no request":                                               parityHeartbeats,
		"NE-14 G15 INV-3 deleting the node cancels: its pods are the pod garbage collector's":                  parityNodeDeleted,
		"NE-15 DE-43 a pod deleted by somebody else is let go without an event":                                parityPodDeleted,
		"NE-16 a pod created anew under the same name is not deleted":                                          parityRecreated,
		"NE-22 from a timer to leaving at once there is no cancelling":                                         parityNoCancelEvent,
		"NE-26 an eviction that is cancelled and comes again is carried out once":                              parityTaintAgain,
		"NE-28 a node created with a taint evicts the pods bound to it":                                        parityNodeCreated,
		"NE-31 pods with different tolerations each leave at their own time":                                   parityManyPods,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

func parityWhoLeaves(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setNode("clean")
	w.setPod(newPod("unscheduled", ""))
	w.setPod(newPod("elsewhere", "clean"))
	w.setPod(newPod("untolerated", "n"))
	w.setPod(newPod("other-key", "n", forever("disk")))
	w.setPod(newPod("finite", "n", tolerationFor("gpu", 60)))
	w.setPod(newPod("forever", "n", forever("gpu")))
	w.start()
	w.leaves("default/untolerated")
	w.leaves("default/other-key")
	w.pass(seconds(60))
	w.stays("default/finite")
	w.pass(seconds(1))
	w.leaves("default/finite")
	w.pass(time.Hour)
	w.stays("default/forever")
	w.stays("default/elsewhere")
	w.stays("default/unscheduled")
}

func parityRemoveFinite(w *world) {
	w.setNode("n", noExecute("gpu"), noExecute("disk"))
	w.setPod(newPod("a", "n", forever("gpu"), tolerationFor("disk", 60)))
	w.start()
	require.InDelta(w.t, 1, w.value("tollgate_evictions_pending"), 0)
	w.pass(seconds(30))
	w.setNode("n", noExecute("gpu"))
	w.pass(time.Hour)
	w.stays(podA)
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func parityRestart(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(seconds(50))
	w.restart()
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func parityLengthen(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(seconds(50))
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = new(int64(100)) })
	w.pass(seconds(50))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func parityShorten(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 600)))
	w.setPod(newPod("b", "n", tolerationFor("gpu", 600)))
	w.start()
	w.pass(seconds(30))
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = new(int64(60)) })
	w.update(podB, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = new(int64(20)) })
	w.leaves(podB)
	w.pass(seconds(30))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func paritySecondTaint(w *world) {
	gpu := noExecute("gpu")
	w.setNode("n", gpu)
	w.setPod(newPod("a", "n", tolerationFor("gpu", 600), tolerationFor("disk", 10)))
	w.start()
	w.pass(seconds(30))
	w.setNode("n", gpu, noExecute("disk"))
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func parityRemoveShorter(w *world) {
	gpu := noExecute("gpu")
	w.setNode("n", gpu, noExecute("disk"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60), tolerationFor("disk", 10)))
	w.start()
	w.pass(seconds(5))
	w.setNode("n", gpu)
	w.pass(seconds(55))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func parityCancel(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(seconds(30))
	w.setNode("n")
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []string{"Pod default/a Normal TaintManagerEviction: Cancelling deletion of Pod default/a"}, w.recorder.took())
	require.Empty(w.t, w.api.took())
}

func parityTolerateForever(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.setPod(newPod("b", "n", tolerationFor("gpu", 60)))
	w.start()
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil })
	w.update(podB, func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, forever("gpu")) })
	w.pass(time.Hour)
	w.stays(podA)
	w.leaves(podB)
}

func parityUntolerate(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", forever("gpu")))
	w.start()
	w.pass(seconds(30))
	w.update(podA, func(p *corev1.Pod) { p.Spec.Tolerations = nil })
	w.leaves(podA)
}

func parityLatePod(w *world) {
	w.start()
	w.setPod(newPod("b", "n", tolerationFor("gpu", 5)))
	w.setNode("n", noExecute("gpu"))
	w.pass(seconds(100))
	w.leaves(podB)
	w.setPod(newPod("a", "n", tolerationFor("gpu", 5)))
	w.pass(seconds(5))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
}

func parityHeartbeats(w *world) {
	gpu := noExecute("gpu")
	w.setNode("n", gpu)
	w.setPod(newPod("a", "n", tolerationFor("gpu", 600)))
	w.start()
	for range 20 {
		w.setNode("n", gpu)
		w.update(podA, func(p *corev1.Pod) { p.Status.Message += "." })
		w.pass(seconds(10))
	}
	require.Empty(w.t, w.api.took())
	require.Empty(w.t, w.recorder.took())
}

func parityNodeDeleted(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.api.remove("n")
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, 1, matches(w.recorder.took(), "Pod default/a Normal TaintManagerEviction: Cancelling"))
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func parityPodDeleted(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.setPod(newPod("b", "n", tolerationFor("gpu", 60)))
	w.start()
	w.api.remove(podA)
	w.update(podB, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	w.pass(time.Hour)
	require.Empty(w.t, w.recorder.took())
	require.Empty(w.t, w.api.took())
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=gone"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=terminating"), 0)
	require.Zero(w.t, w.value("taint_eviction_controller_pod_deletions_total"))
}

func parityRecreated(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setNode("clean")
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.api.setLag(true)
	w.api.remove(podA)
	again := newPod("a", "clean")
	again.UID = "another"
	w.setPod(again)
	w.pass(seconds(120))
	w.stays(podA)
	w.api.setLag(false)
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, types.UID("another"), w.api.pod(podA).UID)
	require.Empty(w.t, w.api.pod(podA).Status.Conditions[1:], "it must not be marked either")
}

func parityNoCancelEvent(w *world) {
	gpu := noExecute("gpu")
	w.setNode("n", gpu)
	w.setPod(newPod("a", "n", tolerationFor("gpu", 600)))
	w.start()
	w.setNode("n", gpu, noExecute("disk"))
	w.pass(seconds(1))
	w.leaves(podA)
	require.Equal(w.t, []string{
		"Pod default/a Normal TaintManagerEviction: Marking for deletion Pod default/a",
		"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
	}, w.recorder.took())
}

func parityTaintAgain(w *world) {
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	for range 5 {
		w.setNode("n", noExecute("gpu"))
		w.pass(seconds(20))
		w.setNode("n")
		w.pass(seconds(20))
	}
	w.stays(podA)
	w.setNode("n", noExecute("gpu"))
	w.pass(seconds(60))
	w.stays(podA)
	w.pass(time.Hour)
	w.leaves(podA)
	requests := w.api.took()
	require.Equal(w.t, 1, matches(requests, "delete"))
	require.Equal(w.t, 1, matches(requests, "patch"))
	require.Equal(w.t, 5, matches(w.recorder.took(), "Pod default/a Normal TaintManagerEviction: Cancelling"))
}

func parityNodeCreated(w *world) {
	w.setPod(newPod("a", "n"))
	w.start()
	w.pass(seconds(30))
	w.stays(podA)
	w.setNode("n", noExecute("gpu"))
	w.leaves(podA)
}

func parityManyPods(w *world) {
	w.setPod(newPod("a", "n", tolerationFor("gpu", 5)))
	w.setPod(newPod("b", "n", tolerationFor("gpu", 15)))
	w.setPod(newPod("c", "n", tolerationFor("gpu", 0)))
	w.setPod(newPod("d", "n", tolerationFor("gpu", -7)))
	w.start()
	w.setNode("n", noExecute("gpu"))
	w.leaves("default/c")
	w.leaves("default/d")
	w.pass(seconds(5))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	w.pass(seconds(9))
	w.stays(podB)
	w.pass(seconds(1))
	w.leaves(podB)
}
