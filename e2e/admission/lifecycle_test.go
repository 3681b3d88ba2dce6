package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// fail makes a node's Ready condition False or Unknown, and keeps kwok from
// repairing it until recover is called.
func fail(t *testing.T, node string, ready corev1.ConditionStatus) {
	t.Helper()
	ctx, nodes := t.Context(), clientOf(t).CoreV1().Nodes()
	_, err := nodes.Patch(ctx, node, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"e2e.tollgate.dev/kubelet":"stopped"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	now := time.Now().UTC().Format(time.RFC3339)
	_, err = nodes.Patch(ctx, node, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		ready, now, now), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// repair lets kwok make a node Ready again.
func repair(t *testing.T, node string) {
	t.Helper()
	_, err := clientOf(t).CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"e2e.tollgate.dev/kubelet":null}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// waitTaint returns the node when it has the NoExecute taint with the one key, and
// not that with the other.
func waitTaint(t *testing.T, name, with, without string) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t.Context(), t, name+" is tainted "+with, func(ctx context.Context) error {
		var err error
		node, err = clientOf(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taintOf(node, with, corev1.TaintEffectNoExecute) == nil || taintOf(node, without, corev1.TaintEffectNoExecute) != nil {
			return fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return nil
	})
	return node
}

// waitTaints returns when a node has as many taints.
func waitTaints(t *testing.T, name string, want int) {
	t.Helper()
	eventually(t.Context(), t, fmt.Sprintf("%s has %d taints", name, want), func(ctx context.Context) error {
		node, err := clientOf(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(node.Spec.Taints) != want {
			err = fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return err
	})
}

// backdate moves the times of the taints of the node lifecycle controller to the past,
// so that they can be told from any time that is set later.
func backdate(t *testing.T, node *corev1.Node, key string) time.Time {
	t.Helper()
	since := hoursAgo(1)
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == key {
			node.Spec.Taints[i].TimeAdded = &since
		}
	}
	require.NoError(t, mergeTaints(t, node.Name, node.Spec.Taints, metav1.PatchOptions{}))
	require.True(t, since.Time.Equal(timeOf(t, nodeNow(t, node.Name), key, corev1.TaintEffectNoExecute)))
	return since.Time
}

func TestTheTimeOfAFailedNodeIsHandedOnByTheNodeLifecycleController(t *testing.T) {
	const name, later = "fails", "fails-later"
	addNode(t, name)
	addNode(t, later)
	before := time.Now()
	fail(t, name, corev1.ConditionFalse)
	waitTaints(t, name, 2) // for NoExecute and NoSchedule, which two parts of the controller set
	node := waitTaint(t, name, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	requireNow(t, timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), before)
	requireNow(t, timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), before)
	since := backdate(t, node, corev1.TaintNodeNotReady)

	t.Run("U6 H03 a restart of the controller keeps it, though the taint is taken off first", func(t *testing.T) {
		scheduled := timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
		require.NoError(t, shared.Restart(t.Context(), controlplane.ControllerManager))
		// It takes the NoExecute taints off all nodes that it does not know yet, before
		// it taints any, and then taints those that have failed.
		fail(t, later, corev1.ConditionFalse)
		waitTaint(t, later, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
		node := waitTaint(t, name, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
		at := timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
		require.True(t, since.Equal(at), "%s became %s", since, at)
		require.True(t, scheduled.Equal(timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)), "what stays keeps its time")
	})
	t.Run("unreachable takes it over from not-ready", func(t *testing.T) {
		fail(t, name, corev1.ConditionUnknown)
		node := waitTaint(t, name, corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady)
		at := timeOf(t, node, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
		require.True(t, since.Equal(at), "%s became %s", since, at)
	})
	t.Run("and gives it back", func(t *testing.T) {
		fail(t, name, corev1.ConditionFalse)
		node := waitTaint(t, name, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
		at := timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
		require.True(t, since.Equal(at), "%s became %s", since, at)
	})
	t.Run("a node that recovers loses it, and begins anew when it fails again", func(t *testing.T) {
		repair(t, name)
		waitTaints(t, name, 0)
		before := time.Now()
		fail(t, name, corev1.ConditionFalse)
		node := waitTaint(t, name, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
		requireNow(t, timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), before)
	})
}

func TestH03ATaintWithoutATimeIsStampedOnceByTheLeader(t *testing.T) {
	const name, key = "stamped-once", "stamped.example.com/x"
	terminate(t)
	created := createNode(t, name, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	require.Nil(t, taintOf(created, key, corev1.TaintEffectNoExecute).TimeAdded)
	before := time.Now()
	require.NoError(t, tollgate.Start(t.Context()))
	since := waitStamped(t, name, key)
	requireNow(t, since, before)

	require.NoError(t, tollgate.Terminate(t.Context()))
	const later = "stamped-later"
	createNode(t, later, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	require.NoError(t, tollgate.Start(t.Context()))
	// The leader has looked at all nodes when it has stamped the one that is new.
	waitStamped(t, later, key)
	require.Equal(t, []string{"none", since.UTC().Format(time.RFC3339)}, timesOf(t, created, key))
}

// waitStamped returns the time of a NoExecute taint as soon as it has one.
func waitStamped(t *testing.T, name, key string) time.Time {
	t.Helper()
	eventually(t.Context(), t, "the leader stamps "+name, func(ctx context.Context) error {
		node, err := clientOf(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taintOf(node, key, corev1.TaintEffectNoExecute).TimeAdded == nil {
			return errors.New("it has no time")
		}
		return nil
	})
	return timeOf(t, nodeNow(t, name), key, corev1.TaintEffectNoExecute)
}

// timesOf returns the times that a NoExecute taint of a node has had since the node
// was as given, each as often as it was changed to; "none" stands for no time.
func timesOf(t *testing.T, since *corev1.Node, key string) []string {
	t.Helper()
	nodes := clientOf(t).CoreV1().Nodes()
	events, err := nodes.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + since.Name, ResourceVersion: since.ResourceVersion,
	})
	require.NoError(t, err)
	defer events.Stop()
	// What has been written before the label has been seen when the label is seen.
	last, err := nodes.Patch(t.Context(), since.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"example.com/seen":"all"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	times := []string{"none"}
	for event := range events.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		require.True(t, ok, "%v", event.Object)
		at := "none"
		if taint := taintOf(node, key, corev1.TaintEffectNoExecute); taint.TimeAdded != nil {
			at = taint.TimeAdded.UTC().Format(time.RFC3339)
		}
		if at != times[len(times)-1] {
			times = append(times, at)
		}
		if node.ResourceVersion == last.ResourceVersion {
			return times
		}
	}
	require.Fail(t, "the watch has ended")
	return nil
}
