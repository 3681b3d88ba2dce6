package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

// firmware is a GPU with that firmware.
func firmware(name, version string) resourcev1.Device {
	device := dra.Device(name)
	device.Attributes["firmware"] = resourcev1.DeviceAttribute{StringValue: &version}
	return device
}

var devicePatches = v1alpha1.GroupVersion.WithResource("resourceslicepatches")

// patchDevices applies a ResourceSlicePatch as somebody, of which it is given
// spec.devices.
func (p *person) patchDevices(t *testing.T, name, devices string, options ...string) error {
	t.Helper()
	object := objects(t, "kind: ResourceSlicePatch\nmetadata: {name: "+name+"}\nspec: {devices: {"+devices+"}}\n")[0]
	_, err := p.resource(t, devicePatches, "").Apply(t.Context(), name, object, metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: options})
	return err
}

// waitReadyPatch waits for the condition Ready of a patch, in words.
func waitReadyPatch(t *testing.T, name, want string) {
	t.Helper()
	becomes(t, "patch "+name+" is "+want, func() error {
		said := mustKubectl(t, "get", "resourceslicepatch", name, "-o",
			`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason}: {.message}{end}`)
		if !strings.HasPrefix(said, want) {
			return fmt.Errorf("it is %q", said)
		}
		return nil
	})
}

func TestSampleOfDevicePatches(t *testing.T) {
	namespaces(t, "recalled")
	deviceClass(t, gpus, firmware("old", "1.2.3"), firmware("new", "1.2.4"), dra.Device("bare"))
	sample(t, "device-patches.yaml")
	waitReadyPatch(t, "recalled-firmware", "True InForce: 1 device is selected.")
	waitReadyPatch(t, "slow-rack", "False NoScheduler: attributes and capacity change nothing, because no scheduler that applies patches runs")
	alice := tenant(t, "alice")
	for _, name := range []string{"old", "new"} {
		require.NoError(t, alice.claim(t, "recalled", dra.Claim(name, gpus, name)))
		alice.createPod(t, "recalled", dra.Pod(name, name))
	}
	waitRuns(t, "recalled", "new")
	// The rule is there, and the scheduler hears of it through a watch: until then pods get
	// the GPU all the same.
	eventually(t, "the scheduler says that the other GPU is tainted", func(ctx context.Context) error {
		pod, err := admin(t).CoreV1().Pods("recalled").Get(ctx, "old", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = alice.CoreV1().Pods("recalled").Create(ctx, dra.Pod("old", "old"), metav1.CreateOptions{})
			return errors.Join(errStill, err)
		}
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			return errors.Join(errStill, alice.CoreV1().Pods("recalled").Delete(ctx, "old", metav1.DeleteOptions{}))
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && pod.DeletionTimestamp == nil {
				return nil
			}
		}
		return errStill
	})
	mustKubectl(t, "delete", "resourceslicepatch", "recalled-firmware")
	waitRuns(t, "recalled", "old")
}

// A patch is written by somebody, and its rules by Tollgate: the first is asked about.
func TestTaintPoliciesAskWhoPatchesDevices(t *testing.T) {
	namespaces(t, "patched-users")
	deviceClass(t, gpus, firmware("a", "1.2.3"), firmware("b", "1.2.4"))
	enforce(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: patched-gpus}
spec:
  taints: [{target: Device, key: example.com/recalled, drivers: [gpu.example.com]}]
  setters: [{subjects: [{kind: Group, name: gpu-operators}]}]
  limits: {maxAffectedPods: 0, requireSelector: true}
  message: call the GPU operators
`)
	alice, gina := tenant(t, "alice"), tenant(t, "gina", "gpu-operators")
	require.NoError(t, alice.claim(t, "patched-users", dra.Claim("a", gpus, "a")))
	alice.createPod(t, "patched-users", dra.Pod("user", "a"))
	waitRuns(t, "patched-users", "user")
	const ofOld = `filter: {driver: gpu.example.com, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].?firmware.orValue("") == "1.2.3"'}}]}`
	t.Cleanup(func() {
		require.NoError(t, gina.resource(t, devicePatches, "").Delete(afterwards(t), "recall", metav1.DeleteOptions{}))
		// Other tests have devices of the same names.
		eventually(t, "the rules of the patch are gone", func(ctx context.Context) error {
			list, err := admin(t).ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch})
			if err == nil && len(list.Items) > 0 {
				err = errStill
			}
			return err
		})
	})
	t.Run("somebody who is no setter is refused", func(t *testing.T) {
		requireRefused(t, alice.patchDevices(t, "recall", ofOld+`, taints: [{key: example.com/recalled, effect: NoSchedule}]`), policy.TaintNotGranted, "call the GPU operators")
	})
	t.Run("nobody taints all devices", func(t *testing.T) {
		requireRefused(t, gina.patchDevices(t, "recall-all", `taints: [{key: example.com/recalled, effect: NoSchedule}]`), policy.SelectorRequired)
	})
	t.Run("a setter is refused what hits more pods than are allowed", func(t *testing.T) {
		require.NoError(t, gina.patchDevices(t, "recall", ofOld+`, taints: [{key: example.com/recalled, effect: NoSchedule}]`))
		waitReadyPatch(t, "recall", "True InForce: 1 device is selected.")
		evicting := ofOld + `, taints: [{key: example.com/recalled, effect: NoExecute}]`
		becomes(t, "Tollgate knows the pod", func() error {
			if err := gina.patchDevices(t, "recall", evicting, dryRun...); !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		requireRefused(t, gina.patchDevices(t, "recall", evicting), policy.TooManyAffected, "1 pod")
	})
	t.Run("until it is approved", func(t *testing.T) {
		require.NoError(t, admin(t).write(t, objects(t, `
kind: EvictionApproval
metadata: {name: recall}
spec:
  resourceSlicePatch: recall
  taint: {key: example.com/recalled, effect: NoExecute}
  maxPods: 5
`)[0]))
		t.Cleanup(func() { mustKubectl(t, "delete", "evictionapproval", "recall") })
		eventuallyAllowed(t, func() error {
			return gina.patchDevices(t, "recall", ofOld+`, taints: [{key: example.com/recalled, effect: NoExecute}]`)
		})
		requireWarned(t, gina.heard.take(), "ResourceSlicePatch recall evicts 1 pod in 1 namespace: 1 now")
		waitGone(t, "patched-users", "user")
	})
	t.Run("nobody else touches the rules that Tollgate makes of it", func(t *testing.T) {
		requireRefused(t, gina.patchRule(t, waitRuleOf(t, "recall"), `{"metadata":{"labels":{"`+v1alpha1.LabelPatch+`":null}}}`, metav1.PatchOptions{}), policy.PatchReserved)
	})
}

// waitRuleOf returns the name of the rule of a patch, once there is no more than one: that
// of a taint that the patch had before goes after the new one has come.
func waitRuleOf(t *testing.T, name string) string {
	t.Helper()
	patch, err := admin(t).resource(t, devicePatches, "").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	of := metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch + "=" + string(patch.GetUID())}
	var rule string
	eventually(t, "patch "+name+" has one rule", func(ctx context.Context) error {
		list, err := admin(t).ResourceV1().DeviceTaintRules().List(ctx, of)
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("it has %d", len(list.Items))
		}
		rule = list.Items[0].Name
		return nil
	})
	return rule
}
