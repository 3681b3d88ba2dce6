package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The tests of this file have the watch overtake an answer that is on its way.

func TestLateAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*world){
		"NE-14 a node deleted while it is read stays deleted, and its pods stay":                lateNode,
		"NE-14 a node deleted while it is read for its stamp stays deleted and gets none":       lateStampRead,
		"NE-14 a node deleted while it is stamped stays deleted":                                lateStamp,
		"a node created anew with a taint while the old one is found missing keeps its taint":   lateNodeMissing,
		"G03 a node found created anew evicts nobody for the taints of the old one":             nodeReplaced,
		"INV-3 H05 a node is read again when the machine was suspended while it was read":       lateAfterSuspend,
		"an API server that takes longer than MaxAge to read a node evicts all the same":        slowRead,
		"a pod deleted while it is marked stays deleted":                                        latePod,
		"a pod deleted while it is read after a conflict stays deleted":                         latePodReread,
		"a pod not found after a conflict is gone when it is not found again":                   podMissingAfterConflict,
		"NE-16 a pod created anew while the old one is found missing is told apart from it":     latePodMissing,
		"NE-16 a pod created anew and gone again while the old one is read is not brought back": latePodReplaced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, test)
		})
	}
}

// once calls do for the first request that fits.
func once(fits func(request) bool, do func() error) func(request) error {
	done := false
	return func(req request) error {
		if done || !fits(req) {
			return nil
		}
		done = true
		return do()
	}
}

// anew replaces the node n by another of that name.
func anew(w *world, taints ...corev1.Taint) {
	w.api.remove("n")
	w.api.store(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another"}, Spec: corev1.NodeSpec{Taints: taints}})
}

func lateNode(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(nil, once(is("get nodes n"), func() error {
		w.api.remove("n")
		return nil
	}))
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	require.Equal(w.t, []request{"get nodes n"}, w.api.took())
	require.Empty(w.t, w.tracker.Tainted())
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
}

func lateStamp(w *world) {
	stampAsTheNodeGoes(w, "patch nodes n")
	require.Equal(w.t, []request{"get nodes n", "patch nodes n"}, w.api.took())
}

func lateStampRead(w *world) {
	stampAsTheNodeGoes(w, "get nodes n")
	require.Equal(w.t, []request{"get nodes n"}, w.api.took())
}

// stampAsTheNodeGoes has the node deleted while a request that stamps it is
// answered.
func stampAsTheNodeGoes(w *world, during string) {
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	w.setNode("n", bare)
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.api.setFaults(nil, once(is(during), func() error {
		w.api.remove("n")
		return nil
	}))
	w.start()
	w.pass(time.Hour)
	w.stays(podA)
	require.Empty(w.t, w.tracker.Tainted())
}

func lateNodeMissing(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(once(is("get nodes n"), func() error {
		anew(w, noExecute("disk"))
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")
	}), nil)
	w.start()
	w.pass(seconds(1))
	uid, taints := w.tracker.Taints("n")
	require.Equal(w.t, types.UID("another"), uid)
	require.Len(w.t, taints, 1)
	w.leaves(podA)
	require.Equal(w.t, 2, matches(w.api.took(), "get nodes n"), "what is not there says nothing about the new node")
}

func nodeReplaced(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.api.setLag(true)
	anew(w)
	w.pass(time.Hour)
	w.stays(podA)
	require.Empty(w.t, w.tracker.Tainted())
	w.api.setLag(false)
	w.pass(time.Hour)
	w.stays(podA)
	uid, _ := w.tracker.Taints("n")
	require.Equal(w.t, types.UID("another"), uid)
}

func lateAfterSuspend(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	local := &steppedClock{}
	w.options.Local = local
	w.api.setFaults(nil, once(is("get nodes n"), func() error {
		local.step(30 * time.Minute)
		w.api.nodes.clear()
		w.setTaintsQuietly("n")
		return nil
	}))
	w.start()
	w.pass(time.Minute)
	w.stays(podA)
	require.Equal(w.t, []request{"get nodes n", "get nodes n"}, w.api.took())
}

// setTaintsQuietly sets the taints of a node from within a request.
func (w *world) setTaintsQuietly(name string, taints ...corev1.Taint) {
	n := w.api.node(name)
	n.Spec.Taints = taints
	w.api.store(n)
}

func slowRead(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(nil, func(req request) error {
		if is("get nodes n")(req) {
			time.Sleep(DefaultMaxAge + time.Second)
		}
		return nil
	})
	w.start()
	w.pass(DefaultMaxAge + time.Second)
	w.leaves(podA)
	require.Equal(w.t, 1, matches(w.api.took(), "get nodes n"))
}

// latePod has the pod deleted by somebody else, let go by its kubelet and
// forgotten, all while the answer to the mark, which says that it is terminating,
// is on its way.
func latePod(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(once(is("patch pods"), func() error {
		w.api.mu.Lock()
		defer w.api.mu.Unlock()
		w.api.objects[podA].(*corev1.Pod).DeletionTimestamp = new(metav1.Now())
		return nil
	}), once(is("patch pods"), func() error {
		w.api.remove(podA)
		return nil
	}))
	w.start()
	w.pass(time.Minute)
	require.Empty(w.t, w.tracker.PodsOn("n"))
	require.Zero(w.t, w.value("tollgate_evictions_pending"))
	require.Zero(w.t, matches(w.api.took(), "delete"))
}

func latePodReread(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(
		once(is("delete pods"), func() error { return errConflict }),
		once(is("get pods"), func() error {
			w.api.remove(podA)
			return nil
		}))
	w.start()
	require.Empty(w.t, w.tracker.PodsOn("n"))
	w.pass(time.Minute)
	require.Empty(w.t, w.tracker.PodsOn("n"))
	require.Equal(w.t, 1, matches(w.api.took(), "delete"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=gone"), 0)
}

func podMissingAfterConflict(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(once(is("delete pods"), func() error {
		w.api.pods.clear()
		w.api.remove(podA)
		return errConflict
	}), nil)
	w.start()
	w.pass(time.Minute)
	require.Equal(w.t, []request{
		"get nodes n", "patch pods/status default/a", "delete pods default/a", "get pods default/a", "get pods default/a",
	}, w.api.took())
	require.Empty(w.t, w.tracker.PodsOn("n"))
	require.InDelta(w.t, 1, w.value("tollgate_evictions_total", "outcome=gone"), 0)
}

func latePodMissing(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(once(is("delete pods"), func() error {
		w.api.remove(podA)
		again := newPod("a", "n", tolerationFor("gpu", 60))
		again.UID = "another"
		w.api.store(again)
		return apierrors.NewNotFound(podResource, "a")
	}), nil)
	w.start()
	w.pass(seconds(60))
	w.stays(podA)
	require.Len(w.t, w.tracker.PodsOn("n"), 1)
	w.pass(seconds(1))
	w.leaves(podA)
}

func latePodReplaced(w *world) {
	w.setNode("n", noExecute("gpu"))
	w.setPod(newPod("a", "n"))
	w.api.setFaults(once(is("delete pods"), func() error {
		w.api.remove(podA)
		again := newPod("a", "n", forever("gpu"))
		again.UID = "another"
		w.api.store(again)
		return nil
	}), once(is("get pods"), func() error {
		w.api.remove(podA)
		return nil
	}))
	w.start()
	w.pass(time.Minute)
	require.Empty(w.t, w.tracker.PodsOn("n"))
	require.Equal(w.t, 1, matches(w.api.took(), "get pods"))
}
