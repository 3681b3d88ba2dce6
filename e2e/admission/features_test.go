package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestCapabilitiesThatAreSwitchedOff(t *testing.T) {
	const name, key = "switched-off", "off.example.com/x"
	namespace := namespaceOf(t, "off-")
	addNode(t, name)
	enforce(t, "off-stays", guarding(key))
	client, policies := clientOf(t), policiesOf(t)
	goes := &v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "off-goes"}, Spec: guarding(key)}
	require.NoError(t, policies.Create(t.Context(), goes))

	t.Run("while they are off", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"TolerationPolicies": false, "NodeTaintTimestamps": false}
		})
		t.Run("policies have no effect", func(t *testing.T) {
			require.NoError(t, admit(t.Context(), client, namespace, podWith(exists(key, ""))))
		})
		t.Run("policies are read and deleted", func(t *testing.T) {
			require.NoError(t, policies.Get(t.Context(), keyOf("off-stays"), &v1alpha1.TolerationPolicy{}))
			require.NoError(t, policies.Delete(t.Context(), goes))
		})
		t.Run("taints get no time from admission", func(t *testing.T) {
			kubectl(t, "taint", "node", name, key+"=:NoSchedule")
			require.Nil(t, taintOf(nodeNow(t, name), key, corev1.TaintEffectNoSchedule).TimeAdded)
		})
		t.Run("the leader stamps what it evicts by all the same", func(t *testing.T) {
			before := time.Now()
			kubectl(t, "taint", "node", name, key+"=:NoExecute")
			requireNow(t, waitStamped(t, name, key), before)
		})
		t.Run("invalid taints are refused as ever", func(t *testing.T) {
			_, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil,
				`{"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":%q}]}}`,
				time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), metav1.PatchOptions{})
			require.ErrorContains(t, err, "timeAdded")
		})
	})
	t.Run("on again they take effect", func(t *testing.T) {
		waitInForce(t.Context(), t)
		err := admit(t.Context(), client, namespace, podWith(exists(key, "")))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "TolerationPolicy/off-stays")
		before := time.Now()
		kubectl(t, "taint", "node", name, "on.example.com/x=:NoSchedule")
		requireNow(t, timeOf(t, nodeNow(t, name), "on.example.com/x", corev1.TaintEffectNoSchedule), before)
	})
}
