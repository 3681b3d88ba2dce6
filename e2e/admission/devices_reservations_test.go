package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// consumers returns n consumers that are no pods, which no controller takes away.
func consumers(n int) []resourcev1.ResourceClaimConsumerReference {
	list := make([]resourcev1.ResourceClaimConsumerReference, n)
	for i := range list {
		list[i] = resourcev1.ResourceClaimConsumerReference{
			APIGroup: "example.com", Resource: "widgets", Name: fmt.Sprintf("w%d", i), UID: uuid.NewUUID(),
		}
	}
	return list
}

// createClaim creates a claim of one device of a class.
func createClaim(t *testing.T, namespace, name, class string) *resourcev1.ResourceClaim {
	t.Helper()
	claim, err := clientOf(t).ResourceV1().ResourceClaims(namespace).Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return claim
}

// allocate gives a claim a device of a driver, as the scheduler does, and reserves it.
func allocate(t *testing.T, claim *resourcev1.ResourceClaim, driver string, by ...resourcev1.ResourceClaimConsumerReference) *resourcev1.ResourceClaim {
	t.Helper()
	claim.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: driver, Pool: "p", Device: "d0"}},
		}},
		ReservedFor: by,
	}
	stored, err := reserve(t.Context(), t, claim, by)
	require.NoError(t, err)
	return stored
}

// reserve sets who a claim is reserved for.
func reserve(ctx context.Context, t *testing.T, claim *resourcev1.ResourceClaim, by []resourcev1.ResourceClaimConsumerReference, options ...string) (*resourcev1.ResourceClaim, error) {
	t.Helper()
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = by
	return clientOf(t).ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{DryRun: options})
}

// taintDriver creates a rule that taints all devices of a driver, and returns when
// Tollgate knows it: it refuses that another consumer takes the place of one.
func taintDriver(t *testing.T, name, driver string, claim *resourcev1.ResourceClaim) {
	t.Helper()
	rules := clientOf(t).ResourceV1().DeviceTaintRules()
	_, err := rules.Create(t.Context(), &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &driver},
			Taint:          resourcev1.DeviceTaint{Key: "admin.example.org/repair", Value: "fan", Effect: resourcev1.DeviceTaintEffectNoSchedule},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(rules.Delete(afterwards(t), name, metav1.DeleteOptions{})))
	})
	eventually(t.Context(), t, "Tollgate knows the rule "+name, func(ctx context.Context) error {
		_, err := reserve(ctx, t, claim, append(slices.Clone(claim.Status.ReservedFor[1:]), consumers(1)...), dryRun...)
		switch {
		case err == nil:
			return errors.New("another consumer is let in")
		case apierrors.IsForbidden(err):
			return nil
		}
		return err // A Tollgate that an earlier test has started anew may not have read the devices yet.
	})
}

func TestAReservationOfATaintedDeviceIsRefused(t *testing.T) {
	const driver = "reserved.example.com"
	namespace := namespaceOf(t, "reserved-")
	by := consumers(4)
	claim := allocate(t, createClaim(t, namespace, "shared", "none"), driver, by[0])
	taintDriver(t, "reserved", driver, claim)

	_, err := reserve(t.Context(), t, claim, by[:2])
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `"validate.tollgate.dev" denied the request: status.reservedFor[1] (widgets/w1): device reserved.example.com/p/d0 `+
		`has the taint admin.example.org/repair=fan:NoSchedule from DeviceTaintRule reserved, which the claim does not tolerate; `+
		`more pods can use the claim once the taint is gone`)

	calls := callsAbout(t.Context(), t, "resourceclaims/status")
	t.Run("who has it keeps it, and other fields of the status change", func(t *testing.T) {
		claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: driver, Pool: "p", Device: "d0", Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now(),
		}}}}
		claim, err = reserve(t.Context(), t, claim, by[:1])
		require.NoError(t, err)
	})
	t.Run("a tainted device may be allocated, of which the scheduler judges", func(t *testing.T) {
		allocate(t, createClaim(t, namespace, "first", "none"), driver, by...)
	})
	t.Run("a release is never refused", func(t *testing.T) {
		other := allocate(t, createClaim(t, namespace, "second", "none"), driver, by...)
		other, err = reserve(t.Context(), t, other, by[2:])
		require.NoError(t, err)
		_, err = reserve(t.Context(), t, other, nil)
		require.NoError(t, err)
	})
	t.Run("none of that is sent to Tollgate at all", func(t *testing.T) {
		require.Equal(t, calls, callsAbout(t.Context(), t, "resourceclaims/status"))
	})
	t.Run("once the taint is gone, more may come", func(t *testing.T) {
		require.NoError(t, clientOf(t).ResourceV1().DeviceTaintRules().Delete(t.Context(), "reserved", metav1.DeleteOptions{}))
		eventually(t.Context(), t, "a second consumer is let in", func(ctx context.Context) error {
			_, err := reserve(ctx, t, claim, by[:2])
			return err
		})
		require.Greater(t, callsAbout(t.Context(), t, "resourceclaims/status"), calls)
	})
}

func TestG11AClaimWithAllConsumersItMayHave(t *testing.T) {
	const driver = "crowded.example.com"
	namespace := namespaceOf(t, "crowded-")
	by := consumers(resourcev1.ResourceClaimReservedForMaxSize)
	claim := allocate(t, createClaim(t, namespace, "crowded", "none"), driver, by[:len(by)-1]...)
	reversed := slices.Clone(by)
	slices.Reverse(reversed)

	calls := callsAbout(t.Context(), t, "resourceclaims/status")
	_, err := reserve(t.Context(), t, claim, by, dryRun...)
	require.NoError(t, err)
	require.Equal(t, calls+1, callsAbout(t.Context(), t, "resourceclaims/status"), "the last consumer is found behind all others")
	claim, err = reserve(t.Context(), t, claim, by)
	require.NoError(t, err)

	calls = callsAbout(t.Context(), t, "resourceclaims/status")
	_, err = reserve(t.Context(), t, claim, reversed, dryRun...)
	require.NoError(t, err, "comparing all with all is within what an expression may cost")
	_, err = reserve(t.Context(), t, claim, reversed[:128], dryRun...)
	require.NoError(t, err)
	require.Equal(t, calls, callsAbout(t.Context(), t, "resourceclaims/status"), "nobody is new")
	_, err = reserve(t.Context(), t, claim, consumers(len(by)), dryRun...)
	require.NoError(t, err)
	require.Equal(t, calls+1, callsAbout(t.Context(), t, "resourceclaims/status"), "all are new")

	taintDriver(t, "crowded", driver, claim)
	_, err = reserve(t.Context(), t, claim, append(slices.Clone(by[1:]), consumers(1)...))
	require.ErrorContains(t, err, "status.reservedFor[255] (widgets/w0)")
}

// TestTheSchedulerDoesNotShareATaintedDevice has the scheduler place two pods that
// share a claim, the second after the device got a taint.
func TestTheSchedulerDoesNotShareATaintedDevice(t *testing.T) {
	const driver = "shared.example.com"
	namespace, c := namespaceOf(t, "sharing-"), clientOf(t)
	_, err := c.ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + driver + `"`}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.ResourceV1().DeviceClasses().Delete(afterwards(t), driver, metav1.DeleteOptions{}))
	})
	published := ofDevices(t, "v1", "resourceslices", "", nil)
	_, err = published.Create(t.Context(), deviceObject(t, "v1", "resourceslices", "shared", taintedSlice("v1", driver, "")), metav1.CreateOptions{})
	require.NoError(t, err)
	deleteAfter(t, published, "shared")
	createClaim(t, namespace, "shared", driver)

	// sharing creates a pod that uses the claim.
	sharing := func(name string) {
		pod := podWith()
		pod.Name, pod.GenerateName = name, ""
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("shared")}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "c"}}
		createPod(t, namespace, pod)
	}
	bound := func(ctx context.Context, name string) error {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = fmt.Errorf("it is not bound: %+v", pod.Status.Conditions)
		}
		return err
	}
	sharing("first")
	eventually(t.Context(), t, "the first pod is placed", func(ctx context.Context) error { return bound(ctx, "first") })
	claim, err := c.ResourceV1().ResourceClaims(namespace).Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, claim.Status.ReservedFor, 1)

	taintDriver(t, "shared", driver, claim)
	sharing("second")
	eventually(t.Context(), t, "the second pod says why it waits", func(ctx context.Context) error {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, "second", metav1.GetOptions{})
		if err != nil {
			return err
		}
		require.Empty(t, pod.Spec.NodeName)
		events, err := c.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=second"})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "device shared.example.com/p/d0 has the taint admin.example.org/repair=fan:NoSchedule from DeviceTaintRule shared") {
				return nil
			}
		}
		return fmt.Errorf("no such event among %d: %+v", len(events.Items), pod.Status.Conditions)
	})
	require.NoError(t, c.ResourceV1().DeviceTaintRules().Delete(t.Context(), "shared", metav1.DeleteOptions{}))
	eventually(t.Context(), t, "the second pod is placed", func(ctx context.Context) error { return bound(ctx, "second") })
}
