package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestDevicesWhileTollgateIsDown(t *testing.T) {
	const driver = "down.example.com"
	namespace := namespaceOf(t, "devices-down-")
	by := consumers(3)
	shared := allocate(t, createClaim(t, namespace, "shared", "none"), driver, by[:2]...)
	taintDriver(t, "down", driver, shared)
	published := ofDevices(t, "v1", "resourceslices", "", nil)
	_, err := published.Create(t.Context(), deviceObject(t, "v1", "resourceslices", "down", taintedSlice("v1", driver, "")), metav1.CreateOptions{})
	require.NoError(t, err)
	deleteAfter(t, published, "down")
	terminate(t)

	t.Run("a driver publishes devices that are well", func(t *testing.T) {
		_, err := published.Patch(t.Context(), "down", types.MergePatchType, []byte(`{"spec":{"devices":[{"name":"d0"},{"name":"d1"}]}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
	t.Run("a driver taints one that fails", func(t *testing.T) {
		_, err := published.Patch(t.Context(), "down", types.MergePatchType, []byte(`{"spec":{"devices":[{"name":"d0","taints":[{"key":"example.com/k","effect":"None"}]}]}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
	t.Run("claims are created, allocated and released", func(t *testing.T) {
		allocate(t, createClaim(t, namespace, "first", "none"), driver, by...)
		shared, err = reserve(t.Context(), t, shared, by[:1])
		require.NoError(t, err)
	})
	t.Run("a claim that is shared already is shared no further", func(t *testing.T) {
		_, err := reserve(t.Context(), t, shared, by)
		require.ErrorContains(t, err, unreachable)
	})
	t.Run("a claim with tolerations waits", func(t *testing.T) {
		require.ErrorContains(t, tolerant(t, namespace, "[{operator: Exists}]"), unreachable)
	})

	require.NoError(t, tollgate.Start(t.Context()))
	eventually(t.Context(), t, "the reservation is judged once the devices are read", func(ctx context.Context) error {
		_, err := reserve(ctx, t, shared, by)
		switch {
		case err == nil:
			return errors.New("it was let in without knowing the devices")
		case apierrors.IsForbidden(err):
			return nil
		}
		return err
	})
	require.NoError(t, tolerant(t, namespace, "[{operator: Exists}]"))
}

// tolerant asks whether a claim with the tolerations may be created.
func tolerant(t *testing.T, namespace, tolerations string) error {
	t.Helper()
	_, err := ofDevices(t, "v1", "resourceclaims", namespace, nil).Create(t.Context(), deviceObject(t, "v1", "resourceclaims", "tolerant",
		"{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: "+tolerations+"}}]}}"), metav1.CreateOptions{DryRun: dryRun})
	return err
}

func TestAV11ClaimsAreMadeFromATemplateThatWasStoredBefore(t *testing.T) {
	namespace := namespaceOf(t, "devices-before-")
	const requests = "{devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{operator: Equal, value: v}, " + sixteen + "]}}]}}"
	store := func(t *testing.T, name string) error {
		t.Helper()
		_, err := ofDevices(t, "v1", "resourceclaimtemplates", namespace, nil).Create(t.Context(),
			deviceObject(t, "v1", "resourceclaimtemplates", name, "{spec: "+requests+"}"), metav1.CreateOptions{})
		return err
	}
	t.Run("a template is stored while nobody judges", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"DeviceTaintAdmission": false}
		})
		require.NoError(t, store(t, "before"))
	})
	require.ErrorContains(t, store(t, "after"), "Too many: 17")

	pod := podWith()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("before")}}
	pod = createPod(t, namespace, pod)
	var made string
	eventually(t.Context(), t, "the pod has a claim", func(ctx context.Context) error {
		found, err := clientOf(t).CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if statuses := found.Status.ResourceClaimStatuses; len(statuses) == 1 && statuses[0].ResourceClaimName != nil {
			made = *statuses[0].ResourceClaimName
			return nil
		}
		return errors.New("there is none yet")
	})
	claim, err := clientOf(t).ResourceV1().ResourceClaims(namespace).Get(t.Context(), made, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, claim.Spec.Devices.Requests[0].Exactly.Tolerations, 17)

	t.Run("nobody else makes one like it", func(t *testing.T) {
		copied := deviceObject(t, "v1", "resourceclaims", "copied", requests)
		copied.SetOwnerReferences(claim.OwnerReferences)
		_, err := ofDevices(t, "v1", "resourceclaims", namespace, nil).Create(t.Context(), copied, metav1.CreateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "Too many: 17")
	})
}

func TestDeviceCapabilitiesThatAreSwitchedOff(t *testing.T) {
	const driver = "off.example.com"
	namespace := namespaceOf(t, "devices-off-")
	claim := allocate(t, createClaim(t, namespace, "shared", "none"), driver, consumers(1)...)
	taintDriver(t, "off", driver, claim)
	more := slices.Concat(claim.Status.ReservedFor, consumers(1))

	t.Run("DE-55 without the eviction", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"DeviceTaintEviction": false}
		})
		_, err := reserve(t.Context(), t, claim, more, dryRun...)
		require.NoError(t, err, "which taints devices have is not followed")
		require.ErrorContains(t, tolerant(t, namespace, seventeen), "Too many: 17")
	})
	t.Run("DE-55 without the rules", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"DeviceTaintRules": false}
		})
		_, err := reserve(t.Context(), t, claim, more, dryRun...)
		require.NoError(t, err, "rules are as if there were none")
	})
	t.Run("without the admission", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"DeviceTaintAdmission": false}
		})
		_, err := reserve(t.Context(), t, claim, more, dryRun...)
		require.NoError(t, err)
		require.NoError(t, tolerant(t, namespace, seventeen))
	})
	t.Run("with both again", func(t *testing.T) {
		require.ErrorContains(t, tolerant(t, namespace, seventeen), "Too many: 17")
		eventually(t.Context(), t, "the reservation is judged", func(ctx context.Context) error {
			_, err := reserve(ctx, t, claim, more, dryRun...)
			switch {
			case err == nil:
				return errors.New("it was let in")
			case apierrors.IsForbidden(err):
				return nil
			}
			return err
		})
	})
}

func TestPatchesThatAreSwitchedOff(t *testing.T) {
	const name = "switched-off"
	patch := filepath.Join(t.TempDir(), "patch.yaml")
	require.NoError(t, os.WriteFile(patch, []byte(`apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: `+name+`}
spec:
  devices:
    filter: {driver: switched-off.example.com}
    attributes: {example.com/a: {int: 1}}
    taints: [{key: off.example.com/patch, effect: NoExecute}]
`), 0o600))
	kubectl(t, "apply", "-f", patch)
	t.Cleanup(func() {
		_, _ = install.Kubectl(afterwards(t), shared, "delete", "resourceslicepatch", name, "--ignore-not-found")
	})
	rules := []string{"get", "devicetaintrules", "-l", v1alpha1.LabelPatch, "-o", "jsonpath={.items[*].spec.taint.key}"}
	ready := []string{"get", "resourceslicepatch", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}: {.status.conditions[?(@.type=="Ready")].message}`}
	says := func(t *testing.T, want string, args ...string) {
		t.Helper()
		eventually(t.Context(), t, "kubectl says "+want, func(ctx context.Context) error {
			out, err := install.Kubectl(ctx, shared, args...)
			if err != nil || string(out) != want {
				return fmt.Errorf("it says %s: %w", out, err)
			}
			return nil
		})
	}
	says(t, "off.example.com/patch", rules...)

	t.Run("without patches", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"ResourceSlicePatches": false}
		})
		says(t, "", rules...)
		says(t, "Disabled: The feature gate ResourceSlicePatches is off: the patch has no effect.", ready...)
		kubectl(t, "patch", "resourceslicepatch", name, "--type=merge", `-p={"spec":{"devices":{"taints":[{"key":"off.example.com/patch","value":"v","effect":"NoExecute"}]}}}`)
	})
	t.Run("with them again", func(t *testing.T) { says(t, "off.example.com/patch", rules...) })
	t.Run("without rules", func(t *testing.T) {
		reconfigure(t, func(config map[string]any) {
			config["featureGates"] = map[string]bool{"DeviceTaintRules": false, "ResourceSlicePatchAttributes": false}
		})
		says(t, "", rules...)
		says(t, "Disabled: attributes and capacity change nothing: the feature gate ResourceSlicePatchAttributes is off; "+
			"taints reach schedulers that apply patches only, and evict no pod: the feature gate DeviceTaintRules is off", ready...)
	})
}
