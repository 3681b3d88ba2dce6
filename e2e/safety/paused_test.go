package safety

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestPausedAndProtectedPodsStay(t *testing.T) {
	t.Parallel()
	const key, policy, pods = prefix + "paused", "paused", 10
	namespace := namespaceOf(t)
	govern(t, policy, key, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Paused = true
		spec.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"system-node-critical"}}
	})
	critical := podOn(nodeOfPaused, "critical")
	critical.Spec.PriorityClassName = "system-node-critical"
	created := create(t, namespace, append(podsOn(nodeOfPaused, pods, "pod"), critical)...)

	taint(t, key, nodeOfPaused)
	t.Run("while the policy is paused nobody leaves", func(t *testing.T) {
		waitHeld(t, policy, pods+1, "Paused")
		waitEvent(t, metav1.NamespaceDefault, controlplane.NodeName(nodeOfPaused), "EvictionHeld", "EvictionPolicy "+policy+" is paused")
		waitAlive(t, namespace, pods+1, created)
		require.Empty(t, asked(t, namespace))
	})
	t.Run("when it goes on they leave, but for who is protected", func(t *testing.T) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
		require.NoError(t, objectsOf(t).Patch(t.Context(), &v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}, patch))
		require.Contains(t, waitAlive(t, namespace, 1, created), critical.Name)
		waitHeld(t, policy, 1, "Protected")
		waitDepartures(t, namespace, pods)
	})
	t.Run("without the taint nothing is held", func(t *testing.T) {
		untaint(t, nodeOfPaused)
		waitHeld(t, policy, 0, "NothingHeld")
		require.Contains(t, waitAlive(t, namespace, 1, created), critical.Name)
	})
}

func TestDeleteAfterEndsThePatienceWithABudget(t *testing.T) {
	t.Parallel()
	const key, policy = prefix + "patience", "patience"
	const after = 5 * time.Second
	namespace := namespaceOf(t)
	govern(t, policy, key, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Method, spec.DeleteAfter = v1alpha1.EvictionMethodEvict, &metav1.Duration{Duration: after}
	})
	guarded := podOn(nodeOfBlocked, "guarded")
	guarded.Labels = map[string]string{crowdLabel: crowdNone}
	create(t, namespace, guarded)
	waitReady(t, namespace, 1)
	_, err := clientOf(t).PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: crowdNone},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	due := taint(t, key, nodeOfBlocked)[controlplane.NodeName(nodeOfBlocked)]
	waitAlive(t, namespace, 0, nil)
	left := waitDepartures(t, namespace, 1)
	require.False(t, left[0].evicted, "it is deleted in the end")
	require.Positive(t, refused(t, namespace, 429), "its budget was asked")
	late := left[0].at.Sub(due)
	t.Logf("deleted %s after it was due, and its budget refused %d times", late.Round(time.Millisecond), refused(t, namespace, 429))
	require.GreaterOrEqual(t, late, after)
	require.Less(t, late, after+time.Minute, "it has an end")
	waitEvent(t, namespace, guarded.Name, "TaintManagerEviction", "its PodDisruptionBudget did not let it go", "deleteAfter of EvictionPolicy "+policy)
}
