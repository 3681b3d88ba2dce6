package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// addNode gives the control plane a node for the length of the test.
func addNode(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, shared.AddNodes(t.Context(), name))
	t.Cleanup(func() { deleteNode(t, name) })
}

// deleteNode deletes a node when the test is over.
func deleteNode(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, clientOf(t).CoreV1().Nodes().Delete(afterwards(t), name, metav1.DeleteOptions{}))
}

// nodeNow returns a node as it is stored.
func nodeNow(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node, err := clientOf(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return node
}

// taintOf returns the taint of a node with the key and the effect, or nil.
func taintOf(node *corev1.Node, key string, effect corev1.TaintEffect) *corev1.Taint {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
	if i < 0 {
		return nil
	}
	return &node.Spec.Taints[i]
}

// timeOf returns the time of a taint that must be there and have one.
func timeOf(t *testing.T, node *corev1.Node, key string, effect corev1.TaintEffect) time.Time {
	t.Helper()
	taint := taintOf(node, key, effect)
	require.NotNil(t, taint, "%s:%s among %v", key, effect, node.Spec.Taints)
	require.NotNil(t, taint.TimeAdded, "%s:%s has no time", key, effect)
	return taint.TimeAdded.Time
}

// requireNow requires that at is the present, give or take how long a write takes.
func requireNow(t *testing.T, at, before time.Time) {
	t.Helper()
	require.False(t, at.Before(before.Truncate(time.Second)), "%s is before %s", at, before)
	require.False(t, at.After(time.Now()), "%s is in the future", at)
}

// hoursAgo is a time that nothing sets by itself.
func hoursAgo(hours int) metav1.Time {
	return metav1.NewTime(time.Now().Add(-time.Duration(hours) * time.Hour).Truncate(time.Second))
}

// setTaints replaces the taints of a node by the same and more, with a merge patch.
func setTaints(t *testing.T, name string, taints ...corev1.Taint) error {
	t.Helper()
	return mergeTaints(t, name, append(nodeNow(t, name).Spec.Taints, taints...), metav1.PatchOptions{})
}

func mergeTaints(t *testing.T, name string, taints []corev1.Taint, options metav1.PatchOptions) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	require.NoError(t, err)
	_, err = clientOf(t).CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, patch, options)
	return err
}

// kubectl runs kubectl as the administrator; it must succeed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, args...)
	require.NoError(t, err, "kubectl %v: %s", args, out)
	return string(out)
}

func TestKubectlTaintGivesATaintItsTime(t *testing.T) {
	const name, key = "kubectl-taint", "kubectl.example.com/x"
	addNode(t, name)
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute} {
		t.Run(fmt.Sprintf("%s gets the present", effect), func(t *testing.T) {
			before := time.Now()
			kubectl(t, "taint", "node", name, fmt.Sprintf("%s=1:%s", key, effect))
			requireNow(t, timeOf(t, nodeNow(t, name), key, effect), before)
		})
	}
	t.Run("overwritten with another value it keeps its time", func(t *testing.T) {
		since := hoursAgo(3)
		require.NoError(t, setTaints(t, name, corev1.Taint{
			Key: "old.example.com/x", Value: "1", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &since,
		}))
		kubectl(t, "taint", "node", name, "--overwrite", "old.example.com/x=2:NoSchedule")
		node := nodeNow(t, name)
		require.Equal(t, "2", taintOf(node, "old.example.com/x", corev1.TaintEffectNoSchedule).Value)
		require.True(t, since.Time.Equal(timeOf(t, node, "old.example.com/x", corev1.TaintEffectNoSchedule)))
	})
	t.Run("taken off and put on it begins again", func(t *testing.T) {
		kubectl(t, "taint", "node", name, "old.example.com/x-")
		before := time.Now()
		kubectl(t, "taint", "node", name, "old.example.com/x=2:NoSchedule")
		requireNow(t, timeOf(t, nodeNow(t, name), "old.example.com/x", corev1.TaintEffectNoSchedule), before)
	})
}

func TestATaintGetsItsTimeHoweverItIsWritten(t *testing.T) {
	const name = "ways-to-write"
	addNode(t, name)
	nodes := clientOf(t).CoreV1().Nodes()
	const taint = `{"key":"ways.example.com/x","value":"%d","effect":"NoExecute"}`
	patches := map[string]write{
		"a strategic merge patch": {types.StrategicMergePatchType, `{"spec":{"taints":[` + taint + `]}}`},
		"a merge patch":           {types.MergePatchType, `{"spec":{"taints":[` + taint + `]}}`},
		"a JSON patch":            {types.JSONPatchType, `[{"op":"add","path":"/spec/taints","value":[` + taint + `]}]`},
		"server-side apply":       {types.ApplyPatchType, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `"},"spec":{"taints":[` + taint + `]}}`},
	}
	for way, w := range patches {
		t.Run(way, func(t *testing.T) {
			_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
			require.NoError(t, err)
			options := metav1.PatchOptions{}
			if w.kind == types.ApplyPatchType {
				options.FieldManager, options.Force = "test", new(true)
			}
			before := time.Now()
			_, err = nodes.Patch(t.Context(), name, w.kind, fmt.Appendf(nil, w.patch, 1), options)
			require.NoError(t, err)
			requireNow(t, timeOf(t, nodeNow(t, name), "ways.example.com/x", corev1.TaintEffectNoExecute), before)

			// From here on it has been there for an hour, which the same write must not change.
			since := hoursAgo(1)
			node := nodeNow(t, name)
			node.Spec.Taints[0].TimeAdded = &since
			require.NoError(t, mergeTaints(t, name, node.Spec.Taints, metav1.PatchOptions{}))
			for value := range 2 {
				_, err = nodes.Patch(t.Context(), name, w.kind, fmt.Appendf(nil, w.patch, 1+value), options)
				require.NoError(t, err)
				require.True(t, since.Time.Equal(timeOf(t, nodeNow(t, name), "ways.example.com/x", corev1.TaintEffectNoExecute)))
			}
		})
	}
}

func TestATimeThatIsGiven(t *testing.T) {
	const name = "given-times"
	addNode(t, name)
	nodes := clientOf(t).CoreV1().Nodes()
	client, heard := clientWithWarnings(t)
	at := func(offset time.Duration) *metav1.Time {
		return new(metav1.NewTime(time.Now().Add(offset).Truncate(time.Second)))
	}
	// write puts one taint on the node and returns it as it is stored then.
	write := func(t *testing.T, taint corev1.Taint) (*corev1.Taint, error) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": []corev1.Taint{taint}}})
		require.NoError(t, err)
		node, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		return &node.Spec.Taints[0], nil
	}
	tests := map[string]struct {
		effect corev1.TaintEffect
		offset time.Duration
		// warning leaves out seconds: times of taints are cut off to whole ones.
		warning string
	}{
		"in the past is kept":                      {corev1.TaintEffectNoSchedule, -time.Hour, ""},
		"of NoExecute in the past is warned about": {corev1.TaintEffectNoExecute, -time.Hour, "spec.taints[0]: given.example.com/b:NoExecute has been there for 1h0m"},
		"that is a little ahead is kept":           {corev1.TaintEffectNoExecute, 30 * time.Second, ""},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			heard.take()
			key := "given.example.com/a"
			if tt.warning != "" {
				key = "given.example.com/b"
			}
			given := at(tt.offset)
			stored, err := write(t, corev1.Taint{Key: key, Effect: tt.effect, TimeAdded: given})
			require.NoError(t, err)
			require.True(t, given.Equal(stored.TimeAdded), "%s became %s", given, stored.TimeAdded)
			told := heard.take()
			if tt.warning == "" {
				require.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			require.Contains(t, told[0], tt.warning)
		})
	}
	t.Run("H01 that is more than a minute ahead is refused", func(t *testing.T) {
		_, err := write(t, corev1.Taint{Key: "given.example.com/c", Effect: corev1.TaintEffectNoExecute, TimeAdded: at(90 * time.Second)})
		require.ErrorContains(t, err, "spec.taints[0].timeAdded")
		require.ErrorContains(t, err, "is more than 1m0s ahead")
	})
	t.Run("AV-21 a second taint with the same key and effect is refused", func(t *testing.T) {
		taint := corev1.Taint{Key: "given.example.com/d", Effect: corev1.TaintEffectNoSchedule}
		err := mergeTaints(t, name, []corev1.Taint{taint, taint}, metav1.PatchOptions{})
		require.ErrorContains(t, err, "taints[1]: Duplicate value")
	})
	t.Run("B15 a dry run shows the time and stores nothing", func(t *testing.T) {
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		before := time.Now()
		node, err := nodes.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"given.example.com/e","effect":"NoExecute"}]}}`), metav1.PatchOptions{DryRun: dryRun})
		require.NoError(t, err)
		requireNow(t, timeOf(t, node, "given.example.com/e", corev1.TaintEffectNoExecute), before)
		require.Empty(t, nodeNow(t, name).Spec.Taints)
	})
}

func TestANodeThatIsBornWithTaintsHasTheirTimes(t *testing.T) {
	const name = "born-with-taints"
	since := hoursAgo(2)
	before := time.Now()
	node, err := clientOf(t).CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "born.example.com/a", Effect: corev1.TaintEffectNoSchedule},
			{Key: "born.example.com/b", Effect: corev1.TaintEffectNoExecute},
			{Key: "born.example.com/c", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &since},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { deleteNode(t, name) })
	requireNow(t, timeOf(t, node, "born.example.com/a", corev1.TaintEffectNoSchedule), before)
	requireNow(t, timeOf(t, node, "born.example.com/b", corev1.TaintEffectNoExecute), before)
	require.True(t, since.Time.Equal(timeOf(t, node, "born.example.com/c", corev1.TaintEffectNoSchedule)))
	requireNow(t, timeOf(t, node, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), before)

	_, err = clientOf(t).CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "born-in-the-future"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: "born.example.com/a", Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Add(time.Hour))),
		}}},
	}, metav1.CreateOptions{})
	require.ErrorContains(t, err, "spec.taints[0].timeAdded")
}
