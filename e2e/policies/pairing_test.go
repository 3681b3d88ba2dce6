package policies

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const degraded = "pairing.example.com/degraded"

// anHourAgo is when a device was tainted that nobody has repaired.
func anHourAgo() *metav1.Time { return new(metav1.NewTime(time.Now().Add(-time.Hour))) }

// replacing creates a Deployment of one pod, which uses a claim made from a template of
// the same name.
func replacing(t *testing.T, namespace, name string) {
	t.Helper()
	pod := dra.FromTemplate(dra.Pod(""), name)
	pod.Labels = map[string]string{"app": name}
	_, err := admin(t).AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// template creates a template of claims and returns it as it is stored.
func template(t *testing.T, namespace string, object *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaimTemplate {
	t.Helper()
	stored, err := admin(t).ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return stored
}

// taintDevices creates a rule that taints the devices of a driver with NoExecute since
// an hour, for the length of the test.
func taintDevices(t *testing.T, name, driver string) {
	t.Helper()
	rule := dra.Rule(name, driver, dra.Taint(degraded, "", resourcev1.DeviceTaintEffectNoExecute))
	rule.Spec.Taint.TimeAdded = anHourAgo()
	_, err := admin(t).ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { repair(t, name) })
}

// repair deletes a rule, if it is there.
func repair(t *testing.T, name string) {
	t.Helper()
	err := admin(t).ResourceV1().DeviceTaintRules().Delete(afterwards(t), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// pairsOf returns the rules of a driver that Tollgate made.
func pairsOf(ctx context.Context, t *testing.T, driver string) ([]resourcev1.DeviceTaintRule, error) {
	t.Helper()
	list, err := admin(t).ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{LabelSelector: "tollgate.dev/pair"})
	if err != nil {
		return nil, err
	}
	var pairs []resourcev1.DeviceTaintRule
	for _, rule := range list.Items {
		if selector := rule.Spec.DeviceSelector; selector != nil && selector.Driver != nil && *selector.Driver == driver {
			pairs = append(pairs, rule)
		}
	}
	return pairs, nil
}

// waitPairs returns when there are so many, each with NoSchedule.
func waitPairs(t *testing.T, driver string, want int) []resourcev1.DeviceTaintRule {
	t.Helper()
	var pairs []resourcev1.DeviceTaintRule
	eventually(t, fmt.Sprintf("there are %d pairs for %s", want, driver), func(ctx context.Context) error {
		var err error
		if pairs, err = pairsOf(ctx, t, driver); err != nil {
			return err
		}
		if len(pairs) != want {
			return fmt.Errorf("there are %d", len(pairs))
		}
		return nil
	})
	for _, pair := range pairs {
		require.Equal(t, degraded, pair.Spec.Taint.Key)
		require.Equal(t, resourcev1.DeviceTaintEffectNoSchedule, pair.Spec.Taint.Effect)
		require.Len(t, pair.OwnerReferences, 1)
	}
	return pairs
}

// waitOnlyPod returns the one pod of a namespace that is not on its way out, once check
// finds nothing wrong with it.
func waitOnlyPod(t *testing.T, namespace, what string, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var only *corev1.Pod
	eventually(t, "the pod of "+namespace+" "+what, func(ctx context.Context) error {
		list, err := admin(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		only = nil
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				only = &list.Items[i]
			}
		}
		if only == nil {
			return errors.New("there is none")
		}
		return check(only)
	})
	return only
}

func runs(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
	}
	return nil
}

// waitKeptOff returns the one pod of a namespace once it has waited for so long that it would
// have been given the device and evicted, were it not kept off: that it waits at one moment
// may be because the pod before it has the device still, or because the scheduler has not
// heard of the pair.
func waitKeptOff(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	const long = 4 * time.Second
	var waiting types.UID
	var since time.Time
	return waitOnlyPod(t, namespace, "waits", func(pod *corev1.Pod) error {
		if pod.UID != waiting || waits(pod) != nil {
			waiting, since = pod.UID, time.Now()
		}
		if err := waits(pod); err != nil {
			return err
		}
		if waited := time.Since(since); waited < long {
			return fmt.Errorf("%s waits for no longer than %s", pod.Name, waited)
		}
		return nil
	})
}

func waits(pod *corev1.Pod) error {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return nil
		}
	}
	return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
}

// The scheduler does not look at tolerationSeconds: it gives the device to a pod that
// tolerates its taint for a while again and again, however long it has been tainted.
func TestPodsWithABoundedDeviceTolerationLoopWithoutAPair(t *testing.T) {
	const driver, namespace = "loops.pairing.example.com", "pairing-loops"
	namespaces(t, namespace)
	deviceClass(t, driver, dra.Device("gpu-0"))
	template(t, namespace, dra.Template("gpu", driver, "", dra.TolerateFor(degraded, 1)))
	taintDevices(t, "pairing-loops", driver)
	replacing(t, namespace, "gpu")

	placed := map[types.UID]string{}
	eventually(t, "one pod after the other gets the device and is evicted", func(ctx context.Context) error {
		list, err := admin(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" {
				placed[pod.UID] = pod.Name
			}
		}
		if len(placed) < 4 {
			return fmt.Errorf("so far %d were: %v", len(placed), placed)
		}
		return nil
	})
	pairs, err := pairsOf(t.Context(), t, driver)
	require.NoError(t, err)
	require.Empty(t, pairs, "a user's own toleration is the user's business")
}

func TestPodsDoNotLoopOnWhatPoliciesGiveForAWhile(t *testing.T) {
	const driver, namespace = "kept.pairing.example.com", "pairing-kept"
	namespaces(t, namespace)
	deviceClass(t, driver, dra.Device("gpu-0"))
	enforce(t, `
kind: PlacementPolicy
metadata: {name: pairing-grace}
spec:
  match: {deviceClasses: [kept.pairing.example.com]}
  claim:
    tolerations: [{key: pairing.example.com/degraded, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]
`)
	given := template(t, namespace, dra.Template("gpu", driver, ""))
	require.Equal(t, []resourcev1.DeviceToleration{dra.TolerateFor(degraded, 1)}, given.Spec.Spec.Devices.Requests[0].Exactly.Tolerations)
	replacing(t, namespace, "gpu")
	first := waitOnlyPod(t, namespace, "runs", runs)

	taintDevices(t, "pairing-kept", driver)
	pair := waitPairs(t, driver, 1)[0]
	require.Equal(t, "pairing-kept-noschedule", pair.Name)
	require.Equal(t, "pairing-kept", pair.OwnerReferences[0].Name)

	held := waitKeptOff(t, namespace)
	require.NotEqual(t, first.UID, held.UID, "the pod that was there has gone")

	t.Run("its claims are not given it twice", func(t *testing.T) {
		claims, err := admin(t).ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, claims.Items)
		for _, claim := range claims.Items {
			require.Len(t, claim.Spec.Devices.Requests[0].Exactly.Tolerations, 1)
		}
	})
	t.Run("a pair that somebody deletes comes back", func(t *testing.T) {
		require.NoError(t, admin(t).ResourceV1().DeviceTaintRules().Delete(t.Context(), pair.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &pair.UID},
		}))
		require.NotEqual(t, pair.UID, waitPairs(t, driver, 1)[0].UID)
	})
	t.Run("a pair follows its rule", func(t *testing.T) {
		patch := []byte(`{"spec":{"taint":{"value":"worse"}}}`)
		_, err := admin(t).ResourceV1().DeviceTaintRules().Patch(t.Context(), "pairing-kept", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		eventually(t, "it has the value of its rule", func(ctx context.Context) error {
			rule, err := admin(t).ResourceV1().DeviceTaintRules().Get(ctx, pair.Name, metav1.GetOptions{})
			if err == nil && rule.Spec.Taint.Value != "worse" {
				err = fmt.Errorf("it has %q", rule.Spec.Taint.Value)
			}
			return err
		})
	})
	held = waitKeptOff(t, namespace)

	repair(t, "pairing-kept")
	waitPairs(t, driver, 0)
	require.Equal(t, held.UID, waitOnlyPod(t, namespace, "runs", runs).UID, "the pod that waited gets the device when it is repaired")
}

func TestPodsDoNotLoopOnWhatDriversTaint(t *testing.T) {
	const driver, namespace = "published.pairing.example.com", "pairing-published"
	namespaces(t, namespace)
	deviceClass(t, driver, dra.Device("gpu-0"))
	enforce(t, `
kind: PlacementPolicy
metadata: {name: pairing-published}
spec:
  match: {namespaces: [pairing-published]}
  claim:
    tolerations: [{key: pairing.example.com/degraded, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]
`)
	template(t, namespace, dra.Template("gpu", driver, ""))
	replacing(t, namespace, "gpu")
	waitOnlyPod(t, namespace, "runs", runs)

	publish := func(taints ...resourcev1.DeviceTaint) {
		eventually(t, "the driver publishes its device again", func(ctx context.Context) error {
			client := admin(t).ResourceV1().ResourceSlices()
			slice, err := client.Get(ctx, dra.Slice(driver, "pool").Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			slice.Spec.Devices[0].Taints = taints
			_, err = client.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		})
	}
	publish(resourcev1.DeviceTaint{Key: degraded, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: anHourAgo()})
	pair := waitPairs(t, driver, 1)[0]
	require.Equal(t, "ResourceSlice", pair.OwnerReferences[0].Kind)
	require.Equal(t, "gpu-0", *pair.Spec.DeviceSelector.Device)
	held := waitKeptOff(t, namespace)

	publish()
	waitPairs(t, driver, 0)
	require.Equal(t, held.UID, waitOnlyPod(t, namespace, "runs", runs).UID)
}
