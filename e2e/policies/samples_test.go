package policies

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

// exercised are the samples, and the tests that do what each is for.
var exercised = map[string]func(*testing.T){
	"dedicated-nodes.yaml":  TestTheStoryOfDedicatedNodes,
	"shared-nodes.yaml":     TestTheOtherHalfOfDedicatedNodesIsSharedOnes,
	"queue-gates.yaml":      TestTheStoryOfAQueueThatOpensItsGate,
	"health-monitor.yaml":   TestSampleOfAHealthMonitorThatQuarantinesGPUs,
	"maintenance-pod.yaml":  TestSampleOfAMaintenancePodOnATaintedDevice,
	"system-taints.yaml":    TestSampleOfSystemTaints,
	"spot-nodes.yaml":       TestSampleOfSpotNodes,
	"default-limits.yaml":   TestSampleOfDefaultLimits,
	"approval.yaml":         TestSampleOfDefaultLimits,
	"tolerationpolicy.yaml": TestSampleOfAFirstPolicy,
	"gentle-eviction.yaml":  TestSampleOfGentleEvictions,
	"stop-evictions.yaml":   TestSampleOfStoppedEvictions,
	"device-patches.yaml":   TestSampleOfDevicePatches,
	"autoscalers.yaml":      TestSampleOfAutoscalers,
	"node-health.yaml":      TestSampleOfNodeHealth,
}

func TestEverySampleIsExercised(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(programs.Root, "deploy", "samples"))
	require.NoError(t, err)
	require.Len(t, files, len(exercised))
	for _, file := range files {
		require.NotNil(t, exercised[file.Name()], "%s has no test", file.Name())
	}
}

func TestSampleOfAFirstPolicy(t *testing.T) {
	namespaces(t, "banana-first", "apple-first")
	namespaceWith(t, "system-first", map[string]string{"tier": "system"})
	sample(t, "tolerationpolicy.yaml")
	alice := tenant(t, "alice")
	const key = "dedicated.example.com/banana"
	require.NoError(t, alice.admit(t, "banana-first", podWith(exists(key, ""))))
	require.NoError(t, alice.admit(t, "system-first", podWith(exists("", ""))), "as DaemonSets of a platform do")
	requireRefused(t, alice.admit(t, "apple-first", podWith(exists("", ""))), policy.TolerationNotGranted, "ask platform@example.com")
}

// gpus are devices of the driver that the samples are about.
const gpus = "gpu.example.com"

func TestSampleOfAHealthMonitorThatQuarantinesGPUs(t *testing.T) {
	sample(t, "health-monitor.yaml")
	namespaces(t, "gpu-users")
	deviceClass(t, gpus, dra.Device("a"), dra.Device("b"))
	monitor := newPerson(t, shared.As("system:serviceaccount:gpu-health:monitor", "system:serviceaccounts", "system:serviceaccounts:gpu-health"))
	alice := tenant(t, "alice")
	require.NoError(t, alice.claim(t, "gpu-users", dra.Claim("gpu", gpus, "a")))
	alice.createPod(t, "gpu-users", dra.Pod("user", "gpu"))
	waitRuns(t, "gpu-users", "user")

	quarantine := func(name, key string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
		rule := ruleObject(name, gpus, key, effect)
		rule.Spec.DeviceSelector.Device = new("a")
		return rule
	}
	deleteRuleAfter(t, "failed-a")
	t.Run("it quarantines a GPU, and who uses it goes", func(t *testing.T) {
		create := func(options ...string) error {
			rule := quarantine("failed-a", "health.example.com/failed", resourcev1.DeviceTaintEffectNoExecute)
			_, err := monitor.ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{DryRun: options})
			return err
		}
		eventuallyAllowed(t, func() error { return create(dryRun...) })
		foretells(t, monitor, func() error { return create(dryRun...) }, "evicts 1 pod in 1 namespace: 1 now")
		require.NoError(t, create())
		requireWarned(t, monitor.heard.take(), "evicts 1 pod in 1 namespace: 1 now")
		waitGone(t, "gpu-users", "user")
	})
	t.Run("with its own keys only", func(t *testing.T) {
		requireRefused(t, monitor.createRule(t, quarantine("other-a", "health.example.com/other", "NoSchedule")), policy.TaintNotGranted, "TaintPolicy/gpu-health")
	})
	t.Run("and not every device at once", func(t *testing.T) {
		rule := quarantine("failed-all", "health.example.com/failed", "NoSchedule")
		rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
		requireRefused(t, monitor.createRule(t, rule), policy.SelectorRequired)
	})
	t.Run("nobody else does, nor lifts what it set", func(t *testing.T) {
		requireRefused(t, alice.createRule(t, quarantine("failed-b", "health.example.com/failed", "NoSchedule")), policy.TaintNotGranted, "call the GPU operators")
		requireRefused(t, alice.ResourceV1().DeviceTaintRules().Delete(t.Context(), "failed-a", metav1.DeleteOptions{}), policy.TaintNotGranted)
	})
	t.Run("a quarantine that is a day old ends", func(t *testing.T) {
		rule := quarantine("failed-long-ago", "health.example.com/failed", "NoSchedule")
		require.NoError(t, tenant(t, "gina", "gpu-operators").createRule(t, rule))
		change(t, "TaintPolicy", "gpu-health", func(spec map[string]any) { delete(spec["limits"].(map[string]any), "maxTimeAddedSkew") })
		long := time.Now().Add(-25 * time.Hour).UTC().Format(time.RFC3339)
		require.NoError(t, tenant(t, "gina", "gpu-operators").patchRule(t, "failed-long-ago", `{"spec":{"taint":{"timeAdded":"`+long+`"}}}`, metav1.PatchOptions{}))
		eventually(t, "the rule is removed", func(ctx context.Context) error {
			list, err := admin(t).ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=failed-long-ago"})
			if err == nil && len(list.Items) > 0 {
				err = errStill
			}
			return err
		})
	})
}

func TestSampleOfAMaintenancePodOnATaintedDevice(t *testing.T) {
	file := filepath.Join(programs.Root, "deploy", "samples", "maintenance-pod.yaml")
	deviceClass(t, gpus, dra.Device("a", dra.Taint("health.example.com/failed", "", resourcev1.DeviceTaintEffectNoSchedule)))
	gina, alice := tenant(t, "gina", "gpu-operators"), tenant(t, "alice")
	// The policy first, and what the operator applies as the operator.
	all, err := os.ReadFile(file)
	require.NoError(t, err)
	waitNamespacesGone(t, objects(t, string(all)))
	t.Cleanup(func() {
		mustKubectl(t, "delete", "--ignore-not-found", "--wait=false", "-f", file)
		waitInForce(t)
	})
	for _, object := range objects(t, string(all)) {
		if object.GetKind() != "TolerationPolicy" && object.GetKind() != "Namespace" {
			continue
		}
		part := filepath.Join(t.TempDir(), "part.yaml")
		require.NoError(t, os.WriteFile(part, encode(t, object), 0o600))
		mustKubectl(t, "apply", "-f", part)
	}
	waitReadyPolicy(t, "TolerationPolicy", "gpu-maintenance")
	waitInForce(t)
	eventually(t, "the namespace can be used", func(ctx context.Context) error {
		_, err := admin(t).CoreV1().ServiceAccounts("gpu-maintenance").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	t.Run("nobody else's claim tolerates it", func(t *testing.T) {
		out, err := alice.kubectl(t, "apply", "-f", file)
		require.Error(t, err)
		require.Contains(t, out, "GPUs that are out of service are for the GPU operators")
		mustKubectl(t, "delete", "--ignore-not-found", "-n", "gpu-maintenance", "pod", "inspect")
	})
	t.Run("the operator's pod gets the device", func(t *testing.T) {
		out, err := gina.kubectl(t, "apply", "-f", file)
		require.NoError(t, err, out)
		waitRuns(t, "gpu-maintenance", "inspect")
		require.Equal(t, []string{"a"}, allocatedTo(t, "gpu-maintenance", "inspect"))
	})
}

func TestSampleOfSystemTaints(t *testing.T) {
	namespaces(t, "anywhere", "storage")
	node(t, "system-taints", nil)
	sample(t, "system-taints.yaml")
	alice := tenant(t, "alice")
	unreachable := corev1.TaintNodeUnreachable
	require.NoError(t, alice.admit(t, "anywhere", podWith()), "what Kubernetes adds is nobody's choice")
	require.NoError(t, alice.admit(t, "anywhere", podWith(forSeconds(unreachable, 900))))
	requireRefused(t, alice.admit(t, "anywhere", podWith(forSeconds(unreachable, 901))), policy.TolerationTooLong, "900")
	requireRefused(t, alice.admit(t, "anywhere", podWith(exists(unreachable, ""))), policy.TolerationTooLong, "a pod that is down")
	require.NoError(t, alice.admit(t, "storage", podWith(forSeconds(unreachable, 86400))))
	requireRefused(t, alice.taintNode(t, "system-taints", noExecute(unreachable, "")), policy.TaintNotGranted, "TaintPolicy/system-taints")
	out, err := alice.kubectl(t, "cordon", "system-taints")
	require.NoError(t, err, out)
	eventually(t, "the controller taints it", func(ctx context.Context) error {
		found, err := admin(t).CoreV1().Nodes().Get(ctx, "system-taints", metav1.GetOptions{})
		if err == nil && taintOf(found, corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule) == nil {
			err = errStill
		}
		return err
	})
}

func TestSampleOfSpotNodes(t *testing.T) {
	const name = "spot-node"
	namespaces(t, "spot-users")
	sample(t, "spot-nodes.yaml")
	createNode(t, kubelet(t, name), name, map[string]string{"lifecycle": "spot"})
	waitReady(t, name)
	toSpot := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.NodeSelector = map[string]string{"lifecycle": "spot"}
		return pod
	}
	spot := func(pod *corev1.Pod) *corev1.Pod {
		pod.Labels = map[string]string{"spot": "true"}
		return pod
	}
	alice := tenant(t, "alice")
	alice.createPod(t, "spot-users", toSpot(podNamed("not-asked")))
	waitUnschedulable(t, "spot-users", "not-asked", "untolerated taint")
	alice.createPod(t, "spot-users", spot(toSpot(podNamed("asked"))))
	require.Equal(t, name, waitRuns(t, "spot-users", "asked"))
	requireRefused(t, alice.admit(t, "spot-users", podWith(exists("spot.example.com/node", ""))), policy.TolerationNotGranted,
		"label the pod spot=true to run on spot nodes", "spot.example.com/node")
	requireRefused(t, alice.admit(t, "spot-users", spot(podWith(forSeconds("spot.example.com/notice", 3600)))), policy.TolerationTooLong, "120")
	handler := serviceAccount(t, "spot-system", "spot-handler")
	foretold := []string{"evicts 1 pod in 1 namespace: 1 within 1", "without a controller"} // 120 seconds, or 119
	waitForetold(t, handler, name, noExecute("spot.example.com/notice", ""), foretold...)
	require.NoError(t, handler.taintNode(t, name, noExecute("spot.example.com/notice", "")))
	requireWarned(t, handler.heard.take(), foretold...)
	requireRefused(t, alice.taintNode(t, name, noSchedule("spot.example.com/other", "")), policy.TaintNotGranted)
}

func TestSampleOfDefaultLimits(t *testing.T) {
	const name, key = "n7", "example.com/broken" // those of the approval
	namespaces(t, "limited")
	node(t, name, nil)
	createPods(t, "limited", 110, func(int) *corev1.Pod { return onNode(podWith(), name) })
	sample(t, "default-limits.yaml")
	alice := tenant(t, "alice")
	becomes(t, "Tollgate knows all pods", func() error {
		out, err := alice.kubectl(t, "taint", "node", name, key+"=:NoExecute", "--dry-run=server")
		if err == nil || !containsAll(out, []string{"110 pods"}) {
			return fmt.Errorf("it says %s", out)
		}
		return nil
	})
	out, err := alice.kubectl(t, "taint", "node", name, key+"=:NoExecute")
	require.Error(t, err)
	require.Contains(t, out, "TaintPolicy/default-limits-nodes")
	require.Contains(t, out, "110 pods")
	require.Contains(t, out, "EvictionApproval")
	out, err = alice.kubectl(t, "taint", "node", name, key+"=:NoSchedule")
	require.NoError(t, err, out)

	t.Run("a rule has to be looked at first, and to select", func(t *testing.T) {
		requireRefused(t, alice.createRule(t, ruleObject("limited", "some.example.com", key, "NoExecute")), policy.PreviewRequired, "TaintPolicy/default-limits-devices")
		every := ruleObject("limited", "", key, "NoExecute")
		every.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
		requireRefused(t, alice.createRule(t, every), policy.SelectorRequired)
		require.NoError(t, alice.createRule(t, ruleObject("limited", "some.example.com", key, "None")))
		require.NoError(t, alice.patchRule(t, "limited", `{"spec":{"taint":{"effect":"NoExecute"}}}`, metav1.PatchOptions{}))
	})
	t.Run("an approval lets the taint pass", func(t *testing.T) {
		sample(t, "approval.yaml")
		becomes(t, "the approval has reached Tollgate", func() error {
			out, err = alice.kubectl(t, "taint", "node", name, key+"=:NoExecute")
			return err
		})
		require.Contains(t, out, "evicts 110 pods in 1 namespace: 110 now")
	})
}
