package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

func TestEventsNE21(t *testing.T) {
	t.Parallel()
	t.Run("NE-21 NE-22 an event names the pod with its UID, and is written once the deletion was accepted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n"))
			w.api.setFaults(first(3, is("delete pods"), errDown), nil)
			w.start()
			w.pass(5 * time.Millisecond)
			require.Empty(w.t, w.recorder.took())
			w.pass(time.Minute)
			require.Equal(w.t, []string{
				"Pod default/a Normal TaintManagerEviction: Marking for deletion Pod default/a",
				"Node n Normal TaintManagerEviction: Evicted 1 pod because of a NoExecute taint",
			}, w.recorder.took())
			require.Equal(w.t, []corev1.ObjectReference{
				{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "a-uid"},
				{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n-uid", FieldPath: "spec{gpu:NoExecute}"},
			}, w.recorder.refs)
			require.Equal(w.t, []map[string]string{
				{"tollgate.dev/evicted-because": "taint gpu:NoExecute of Node n"}, // on the pod
				{"tollgate.dev/evicted-because": "taint gpu:NoExecute of Node n"}, // in sum on the node
			}, w.recorder.annotations)
		})
	})
	t.Run("NE-21 DE-42 what an event on a pod leaves unsaid names the object that somebody wrote", func(t *testing.T) {
		t.Parallel()
		taint := tracker.Taint{Key: "hot", Value: "1", Effect: corev1.TaintEffectNoExecute, Source: tracker.Source{Kind: tracker.SourceRule, Name: "p-1"}}
		used := device.ID{Driver: "d", Pool: "p", Name: "0"}
		require.Equal(t, "taint hot=1:NoExecute of DeviceTaintRule p-1, device d/p/0", reasonText(&decide.Reason{Taint: taint, Device: used}))
		taint.Patch = tracker.PatchRef{Name: "p"}
		require.Equal(t, "taint hot=1:NoExecute of ResourceSlicePatch p, device d/p/0", reasonText(&decide.Reason{Taint: taint, Device: used}))
	})
}
