package safety

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// only makes a policy be about the pods of one namespace.
func only(spec *v1alpha1.EvictionPolicySpec, namespace string) {
	spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

// limitTo gives a policy the shape of the default that ships: it is about all taints, is
// asked last, and its breaker is about all evictions, whoever decides about them.
func limitTo(spec *v1alpha1.EvictionPolicySpec, namespace string, pods int32) {
	only(spec, namespace)
	spec.Priority = -1000
	spec.Taints = []v1alpha1.TaintSelector{{Key: "*"}, {Target: v1alpha1.TaintTargetDevice, Key: "*"}}
	spec.Breaker = &v1alpha1.EvictionBreaker{
		MaxPods: &pods, Window: metav1.Duration{Duration: time.Minute}, Scope: v1alpha1.LimitScopeSelected,
	}
}

// approve creates an EvictionApproval, and returns a function that returns how many pods
// were let go because of it.
func approve(t *testing.T, name string, spec v1alpha1.EvictionApprovalSpec) func(ctx context.Context) (int32, error) {
	t.Helper()
	c := objectsOf(t)
	approval := &v1alpha1.EvictionApproval{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	approval.Spec.ExpiresAfter = metav1.Duration{Duration: time.Hour}
	require.NoError(t, c.Create(t.Context(), approval))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), approval)) })
	return func(ctx context.Context) (int32, error) {
		var now v1alpha1.EvictionApproval
		err := c.Get(ctx, client.ObjectKeyFromObject(approval), &now)
		return now.Status.Released, err
	}
}

// It is not parallel, because it kills Tollgate: nothing that has to be admitted can be
// written until that is back.
func TestJ01J05ABreakerHoldsWhatIsMoreThanItsLimit(t *testing.T) {
	const key, policy = prefix + "j01", "j01-default"
	const pods, limit, approved, approvedOfPolicy = 100, 30, 20, 10
	node := controlplane.NodeName(nodeOfBreaker)
	namespace := namespaceOf(t)
	govern(t, policy, "*", func(spec *v1alpha1.EvictionPolicySpec) { limitTo(spec, namespace, limit) })
	govern(t, "j01-decides", key, func(spec *v1alpha1.EvictionPolicySpec) { only(spec, namespace) })
	created := create(t, namespace, podsOn(nodeOfBreaker, pods, "pod")...)
	waitReady(t, namespace, pods)

	taint(t, key, nodeOfBreaker)
	status := waitHeld(t, policy, pods-limit, "BreakerTripped")
	t.Run("it lets as many go as its limit says, and holds the rest", func(t *testing.T) {
		waitAlive(t, namespace, pods-limit, created)
		waitDepartures(t, namespace, limit)
		require.NotNil(t, status.Breaker)
		require.NotNil(t, status.Breaker.Tripped)
		require.Equal(t, []v1alpha1.HeldEvictions{{Kind: "Node", Name: node, Pods: pods - limit}}, status.Holding)
	})
	t.Run("that is said of the node, of the policy and in lists", func(t *testing.T) {
		waitEvent(t, metav1.NamespaceDefault, node, "EvictionHeld", key, "the breaker of EvictionPolicy "+policy, "Approve with an EvictionApproval")
		waitEvent(t, metav1.NamespaceDefault, policy, "BreakerTripped", "30 pods were let go within 1m0s")
		out, err := install.Kubectl(t.Context(), shared, "get", "evictionpolicies", policy)
		require.NoError(t, err, string(out))
		t.Logf("kubectl get evictionpolicies:\n%s", out)
		row := strings.Fields(strings.Split(string(out), "\n")[1])
		require.Contains(t, strings.Join(row, " "), fmt.Sprintf("Delete %d BreakerTripped True", pods-limit))
	})
	t.Run("J05 a crash changes nothing", func(t *testing.T) {
		require.NoError(t, tollgate.Kill(t.Context()))
		require.NoError(t, tollgate.Start(t.Context()))
		waitMetric(t, pods-limit, "tollgate_evictions_held", `reason="breaker_tripped"`, `source="node"`)
		waitMetric(t, 1, "tollgate_breakers_tripped")
		waitHeld(t, policy, pods-limit, "BreakerTripped")
		waitAlive(t, namespace, pods-limit, created)
		waitDepartures(t, namespace, limit)
	})
	t.Run("an approval lets as many go as it says", func(t *testing.T) {
		released := approve(t, "j01", v1alpha1.EvictionApprovalSpec{
			Node: node, Taint: v1alpha1.ApprovedTaint{Key: key, Effect: corev1.TaintEffectNoExecute}, MaxPods: approved,
		})
		waitHeld(t, policy, pods-limit-approved, "BreakerTripped")
		waitAlive(t, namespace, pods-limit-approved, created)
		eventually(t, "the approval says so", func(ctx context.Context) error {
			n, err := released(ctx)
			if err == nil && n != approved {
				err = fmt.Errorf("it says that %d pods were let go, not %d", n, approved)
			}
			return err
		})
		waitDepartures(t, namespace, limit+approved)
	})
	t.Run("an approval for the policy does as well", func(t *testing.T) {
		approve(t, "j01-policy", v1alpha1.EvictionApprovalSpec{EvictionPolicy: policy, MaxPods: approvedOfPolicy})
		waitHeld(t, policy, pods-limit-approved-approvedOfPolicy, "BreakerTripped")
		eventually(t, "the approval is used up", func(ctx context.Context) error {
			var now v1alpha1.EvictionApproval
			if err := objectsOf(t).Get(ctx, client.ObjectKey{Name: "j01-policy"}, &now); err != nil {
				return err
			}
			if ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != "Used" || now.Status.Evicted != approvedOfPolicy {
				return fmt.Errorf("its status is %+v", now.Status)
			}
			return nil
		})
	})
	t.Run("without the taint the rest stays, and the breaker recovers", func(t *testing.T) {
		untaint(t, nodeOfBreaker)
		waitHeld(t, policy, 0, "NothingHeld")
		waitEvent(t, metav1.NamespaceDefault, node, "EvictionReleased", key)
		waitEvent(t, metav1.NamespaceDefault, policy, "BreakerReleased", "fits into the limit again")
		waitMetric(t, 0, "tollgate_evictions_held", `reason="breaker_tripped"`, `source="node"`)
		waitAlive(t, namespace, pods-limit-approved-approvedOfPolicy, created)
		waitDepartures(t, namespace, limit+approved+approvedOfPolicy)
		eventually(t, "the status of the breaker", func(ctx context.Context) error {
			status, err := statusOf(ctx, objectsOf(t), policy)
			if err == nil && status.Breaker.Tripped != nil {
				err = fmt.Errorf("tripped since %s", status.Breaker.Tripped)
			}
			return err
		})
	})
}
