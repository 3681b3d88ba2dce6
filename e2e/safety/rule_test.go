package safety

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// conditionHeld is the condition of DeviceTaintRules that says what is held.
const conditionHeld = "tollgate.dev/EvictionHeld"

func TestJ01ARuleThatSelectsEveryDeviceIsHeld(t *testing.T) {
	t.Parallel()
	const key, policy, rule = prefix + "j01-devices", "j01-devices", "j01-devices"
	const pods, limit, approved = 10, 4, 2
	namespace := namespaceOf(t)
	driver := namespace + ".example.com"
	govern(t, policy, "*", func(spec *v1alpha1.EvictionPolicySpec) { limitTo(spec, namespace, limit) })
	created := createUsers(t, namespace, driver, pods)

	rules := clientOf(t).ResourceV1().DeviceTaintRules()
	_, err := rules.Create(t.Context(), dra.Rule(rule, driver, dra.Taint(key, "", resourcev1.DeviceTaintEffectNoExecute)), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rules.Delete(context.WithoutCancel(t.Context()), rule, metav1.DeleteOptions{}) })
	status := waitHeld(t, policy, pods-limit, "BreakerTripped")
	require.Equal(t, []v1alpha1.HeldEvictions{{Kind: "DeviceTaintRule", Name: rule, Pods: pods - limit}}, status.Holding)
	waitAlive(t, namespace, pods-limit, created)
	t.Run("the rule says so", func(t *testing.T) {
		waitRuleHeld(t, rule, metav1.ConditionTrue, "BreakerTripped", fmt.Sprintf("%d pods are held", pods-limit), "EvictionApproval")
		waitEvent(t, metav1.NamespaceDefault, rule, "EvictionHeld", "the breaker of EvictionPolicy "+policy)
	})
	t.Run("an approval for it lets as many go as it says", func(t *testing.T) {
		approve(t, "j01-devices", v1alpha1.EvictionApprovalSpec{
			DeviceTaintRule: rule, Taint: v1alpha1.ApprovedTaint{Key: key, Effect: corev1.TaintEffectNoExecute}, MaxPods: approved,
		})
		waitRuleHeld(t, rule, metav1.ConditionTrue, "BreakerTripped", fmt.Sprintf("%d pods are held", pods-limit-approved))
		waitAlive(t, namespace, pods-limit-approved, created)
	})
	t.Run("without the rule the rest stays", func(t *testing.T) {
		require.NoError(t, rules.Delete(t.Context(), rule, metav1.DeleteOptions{}))
		waitHeld(t, policy, 0, "NothingHeld")
		waitAlive(t, namespace, pods-limit-approved, created)
		waitDepartures(t, namespace, limit+approved)
	})
}

// createUsers creates a driver, and pods that use a device of it each, and returns their
// UIDs by name once they run.
func createUsers(t *testing.T, namespace, driver string, count int) map[string]types.UID {
	t.Helper()
	client := clientOf(t).ResourceV1()
	slice := dra.Slice(driver, "pool")
	var users []*corev1.Pod
	_, err := client.DeviceClasses().Create(t.Context(), dra.Class(driver), metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range count {
		name := fmt.Sprintf("d%d", i)
		slice.Spec.Devices = append(slice.Spec.Devices, dra.Device(name))
		_, err := client.ResourceClaims(namespace).Create(t.Context(), dra.Claim(name, driver, name), metav1.CreateOptions{})
		require.NoError(t, err)
		user := dra.Pod(name, name)
		user.Spec.NodeSelector = map[string]string{corev1.LabelHostname: controlplane.NodeName(nodeOfRule)}
		users = append(users, user)
	}
	_, err = client.ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, client.ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}))
		require.NoError(t, client.DeviceClasses().Delete(ctx, driver, metav1.DeleteOptions{}))
	})
	created := create(t, namespace, users...)
	waitReady(t, namespace, count)
	return created
}

// waitRuleHeld waits until the condition of a rule about what is held is as wanted, and
// its message has all of some words.
func waitRuleHeld(t *testing.T, rule string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	rules := clientOf(t).ResourceV1().DeviceTaintRules()
	eventually(t, "condition of rule "+rule, func(ctx context.Context) error {
		found, err := rules.Get(ctx, rule, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, conditionHeld)
		if condition == nil {
			return errors.New("there is none")
		}
		if condition.Status != status || condition.Reason != reason || !hasAll(condition.Message, words) {
			return fmt.Errorf("it is %+v", condition)
		}
		return nil
	})
}
