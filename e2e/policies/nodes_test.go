package policies

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/policy"
)

// born is a policy that gives nodes of a pool a taint at birth; only the group sre
// sets, changes and removes it.
const born = `
kind: TaintPolicy
metadata: {name: born}
spec:
  taints: [{key: born.example.com/*}]
  setters: [{subjects: [{kind: Group, name: sre}]}]
  register:
  - nodeSelector: {matchLabels: {born.example.com/pool: banana}}
    taints: [{key: born.example.com/dedicated, value: banana, effect: NoSchedule}]
`

var pool = map[string]string{"born.example.com/pool": "banana"}

func TestC22NodesCannotShedTheTaintsTheyAreBornWith(t *testing.T) {
	const name = "born-node"
	enforce(t, born)
	self := kubelet(t, name)
	requireBorn := func(t *testing.T) {
		t.Helper()
		taint := taintOf(nodeNow(t, name), "born.example.com/dedicated", corev1.TaintEffectNoSchedule)
		require.NotNil(t, taint)
		require.Equal(t, "banana", taint.Value)
		require.NotNil(t, taint.TimeAdded)
	}
	createNode(t, self, name, pool)
	requireBorn(t)
	t.Run("a node that goes and comes back has them again", func(t *testing.T) {
		require.NoError(t, admin(t).CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
		_, err := self.CoreV1().Nodes().Create(t.Context(), nodeObject(name, pool), metav1.CreateOptions{})
		require.NoError(t, err)
		requireBorn(t)
	})
	waitReady(t, name)
	t.Run("it cannot take them off", func(t *testing.T) {
		_, err := self.mergePatch(t.Context(), name, specTaints(nil))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("nor the label that it has them by", func(t *testing.T) {
		shed := map[string]any{"metadata": map[string]any{"labels": map[string]any{"born.example.com/pool": nil}}}
		_, err := self.mergePatch(t.Context(), name, shed)
		requireRefused(t, err, policy.NodeLeavesSelector, "TaintPolicy/born", "born.example.com/pool")
		_, err = self.mergePatch(t.Context(), name, shed, "status")
		requireRefused(t, err, policy.NodeLeavesSelector, "TaintPolicy/born", "born.example.com/pool")
	})
	t.Run("nor make itself the dependent of something that is about to go", func(t *testing.T) {
		owned := map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": "nothing", "uid": "00000000-0000-0000-0000-000000000000",
		}}}}
		_, err := self.mergePatch(t.Context(), name, owned)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		_, err = self.mergePatch(t.Context(), name, owned, "status")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		_, err = kubelet(t, "born-owned").CoreV1().Nodes().Create(t.Context(), func() *corev1.Node {
			node := nodeObject("born-owned", nil)
			node.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nothing", UID: "none"}}
			return node
		}(), metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("C05 nor by writing taints into its status", func(t *testing.T) {
		_, err := self.mergePatch(t.Context(), name, specTaints(nil), "status")
		if err != nil {
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		}
		requireBorn(t)
	})
	t.Run("other labels and heartbeats are its own", func(t *testing.T) {
		_, err := self.mergePatch(t.Context(), name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"example.com/a": "b"}}})
		require.NoError(t, err)
		_, err = self.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"DiskPressure","status":"False","reason":"KubeletHasNoDiskPressure"}]}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	})
}

func TestC23AGovernedTaintIsKeptHoweverItsRemovalIsWritten(t *testing.T) {
	const name = "governed-node"
	enforce(t, born)
	node(t, name, pool, noSchedule("free.example.com/a", "1"), noSchedule("free.example.com/b", "2"))
	alice, sre := tenant(t, "alice"), tenant(t, "sally", "sre")
	taints := func() []corev1.Taint { return nodeNow(t, name).Spec.Taints }
	at := func(key string) int {
		return slices.IndexFunc(taints(), func(taint corev1.Taint) bool { return taint.Key == key })
	}
	patch := func(who *person, kind types.PatchType, body any, options metav1.PatchOptions) error {
		content, err := json.Marshal(body)
		require.NoError(t, err)
		_, err = who.CoreV1().Nodes().Patch(t.Context(), name, kind, content, options)
		return err
	}
	without := func(key string) []corev1.Taint {
		return slices.DeleteFunc(slices.Clone(taints()), func(taint corev1.Taint) bool { return taint.Key == key })
	}
	const key = "born.example.com/dedicated"
	removals := map[string]func() error{
		"a merge patch": func() error {
			return patch(alice, types.MergePatchType, specTaints(without(key)), metav1.PatchOptions{})
		},
		"a merge patch of null": func() error {
			return patch(alice, types.MergePatchType, map[string]any{"spec": map[string]any{"taints": nil}}, metav1.PatchOptions{})
		},
		"a strategic merge patch": func() error {
			return patch(alice, types.StrategicMergePatchType, specTaints(without(key)), metav1.PatchOptions{})
		},
		"a JSON patch": func() error {
			return patch(alice, types.JSONPatchType, []any{map[string]any{"op": "remove", "path": jsonPointer(at(key))}}, metav1.PatchOptions{})
		},
		"an update": func() error {
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write it, too
				changed := nodeNow(t, name)
				changed.Spec.Taints = without(key)
				_, err := alice.CoreV1().Nodes().Update(t.Context(), changed, metav1.UpdateOptions{})
				return err
			})
		},
		"server-side apply": func() error {
			return patch(alice, types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"taints": without(key)},
			}, metav1.PatchOptions{FieldManager: "alice", Force: new(true)})
		},
	}
	for how, remove := range removals {
		t.Run(how, func(t *testing.T) {
			requireRefused(t, remove(), policy.TaintNotGranted, "TaintPolicy/born", "born.example.com/dedicated=banana:NoSchedule")
		})
	}
	t.Run("kubectl taint", func(t *testing.T) {
		out, err := alice.kubectl(t, "taint", "node", name, key+"-")
		require.Error(t, err)
		require.Contains(t, out, "TaintPolicy/born")
	})
	t.Run("another value is a change", func(t *testing.T) {
		changed := taints()
		changed[at(key)].Value = "kiwi"
		requireRefused(t, patch(alice, types.MergePatchType, specTaints(changed), metav1.PatchOptions{}), policy.TaintNotGranted)
	})
	t.Run("another time is a change", func(t *testing.T) {
		changed := taints()
		changed[at(key)].TimeAdded = &metav1.Time{Time: changed[at(key)].TimeAdded.Add(-1e12)}
		requireRefused(t, patch(alice, types.MergePatchType, specTaints(changed), metav1.PatchOptions{}), policy.TaintNotGranted)
	})
	t.Run("another order is none", func(t *testing.T) {
		turned := taints()
		slices.Reverse(turned)
		require.NoError(t, patch(alice, types.MergePatchType, specTaints(turned), metav1.PatchOptions{}))
	})
	t.Run("who may, does", func(t *testing.T) {
		require.NoError(t, patch(sre, types.MergePatchType, specTaints(without(key)), metav1.PatchOptions{}))
		require.Equal(t, -1, at(key))
	})
}

func jsonPointer(index int) string {
	const digits = "0123456789"
	return "/spec/taints/" + digits[index:index+1]
}

func TestSystemControllersAreNeverRefusedTheirKeys(t *testing.T) {
	const name = "system-node"
	node(t, name, nil)
	enforce(t, `
kind: TaintPolicy
metadata: {name: system}
spec:
  taints: [{key: node.kubernetes.io/*}, {key: node.cloudprovider.kubernetes.io/*}]
`)
	t.Run("cordon is the user's matter, and its taint the controller's", func(t *testing.T) {
		mustKubectl(t, "cordon", name)
		eventually(t, "the node is tainted", func(ctx context.Context) error {
			found, err := admin(t).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err == nil && taintOf(found, corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule) == nil {
				err = errStill
			}
			return err
		})
		mustKubectl(t, "uncordon", name)
		waitReady(t, name)
	})
	t.Run("a user who writes them is refused", func(t *testing.T) {
		err := tenant(t, "alice").taintNode(t, name, noSchedule(corev1.TaintNodeUnreachable, ""))
		requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/system", corev1.TaintNodeUnreachable)
	})
	t.Run("a node that is new comes up", func(t *testing.T) { node(t, "system-node-new", nil) })
}
