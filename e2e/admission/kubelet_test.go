package admission

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// terminate ends Tollgate, and starts it again when the test is over unless the
// test has.
func terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, tollgate.Terminate(t.Context()))
	t.Cleanup(func() {
		if !tollgate.Alive() {
			require.NoError(t, tollgate.Start(afterwards(t)))
		}
	})
}

// createNode creates a node with taints for the length of the test.
func createNode(t *testing.T, name string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	node, err := clientOf(t).CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Taints: taints},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { deleteNode(t, name) })
	return node
}

// heartbeat is what a kubelet writes into the status of its node.
const heartbeat = `{"status":{"conditions":[{"type":"DiskPressure","status":"False","reason":"KubeletHasNoDiskPressure"}]}}`

// updateAsKubelet writes the whole node as its kubelet does that has read it before.
func updateAsKubelet(ctx context.Context, t *testing.T, name string, change func(*corev1.Node)) error {
	t.Helper()
	nodes := kubelet(t, name).CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

func TestTP18AKubeletsOwnWritesNeverFailBecauseOfUs(t *testing.T) {
	const name = "kubelet-writes"
	terminate(t)
	// NoSchedule, which nobody stamps later: the taint has no time for as long as it stands.
	createNode(t, name, corev1.Taint{Key: "untimed.example.com/x", Effect: corev1.TaintEffectNoSchedule})
	require.NoError(t, tollgate.Start(t.Context()))
	require.Nil(t, taintOf(nodeNow(t, name), "untimed.example.com/x", corev1.TaintEffectNoSchedule).TimeAdded)
	since := hoursAgo(1)
	require.NoError(t, setTaints(t, name,
		corev1.Taint{Key: "timed.example.com/x", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &since}))

	ctx, nodes := t.Context(), kubelet(t, name).CoreV1().Nodes()
	patch := func(kind types.PatchType, content string, subresources ...string) error {
		_, err := nodes.Patch(ctx, name, kind, []byte(content), metav1.PatchOptions{}, subresources...)
		return err
	}
	writes := map[string]func() error{
		"a label": func() error {
			return patch(types.StrategicMergePatchType, `{"metadata":{"labels":{"example.com/a":"b"}}}`)
		},
		"an annotation": func() error {
			return patch(types.StrategicMergePatchType, `{"metadata":{"annotations":{"example.com/a":"b"}}}`)
		},
		"a heartbeat": func() error { return patch(types.StrategicMergePatchType, heartbeat, "status") },
		"the whole node": func() error {
			return updateAsKubelet(ctx, t, name, func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, "example.com/whole", "yes") })
		},
		"the whole node with the taints written again": func() error {
			return updateAsKubelet(ctx, t, name, func(node *corev1.Node) {
				metav1.SetMetaDataLabel(&node.ObjectMeta, "example.com/again", "yes")
				content, err := json.Marshal(node.Spec.Taints)
				require.NoError(t, err)
				node.Spec.Taints = nil
				require.NoError(t, json.Unmarshal(content, &node.Spec.Taints))
			})
		},
	}
	waitTaints(t, name, 2) // once it is Ready, only those of the test are left
	const calls = `tollgate_admission_requests_total{dry_run="false",endpoint="mutate",operation="UPDATE",resource="nodes"`
	before, err := metric(ctx, calls)
	require.NoError(t, err)
	for what, write := range writes {
		t.Run(what, func(t *testing.T) { require.NoError(t, write()) })
	}
	t.Run("none of it is sent to Tollgate at all", func(t *testing.T) {
		after, err := metric(ctx, calls)
		require.NoError(t, err)
		require.InDelta(t, before, after, 0)
	})
	t.Run("and nothing of it touches the taints", func(t *testing.T) {
		node := nodeNow(t, name)
		require.Nil(t, taintOf(node, "untimed.example.com/x", corev1.TaintEffectNoSchedule).TimeAdded)
		require.True(t, since.Time.Equal(timeOf(t, node, "timed.example.com/x", corev1.TaintEffectNoSchedule)))
	})
	t.Run("while NodeRestriction still refuses it the taints", func(t *testing.T) {
		err := updateAsKubelet(ctx, t, name, func(node *corev1.Node) { node.Spec.Taints = nil })
		require.ErrorContains(t, err, "is not allowed to modify taints")
	})
}

func TestTP18AKubeletRegistersWithTaints(t *testing.T) {
	const name = "kubelet-registers"
	before := time.Now()
	_, err := kubelet(t, name).CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "register.example.com/a", Effect: corev1.TaintEffectNoSchedule},
			{Key: "register.example.com/b", Effect: corev1.TaintEffectNoExecute},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { deleteNode(t, name) })
	node := nodeNow(t, name)
	requireNow(t, timeOf(t, node, "register.example.com/a", corev1.TaintEffectNoSchedule), before)
	requireNow(t, timeOf(t, node, "register.example.com/b", corev1.TaintEffectNoExecute), before)
	require.NoError(t, updateAsKubelet(t.Context(), t, name, func(node *corev1.Node) { node.Labels = map[string]string{"example.com/a": "b"} }))
}
