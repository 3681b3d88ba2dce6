package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	nodeKey   = "e2e.example.com/maintenance"
	deviceKey = "e2e.example.com/fault"

	// The users of the controllers of Kubernetes.
	nodeController   = "system:serviceaccount:kube-system:node-controller"
	deviceController = "system:serviceaccount:kube-system:device-taint-eviction-controller"
)

// TestModes shows one mode after the other: there is one Tollgate.
func TestModes(t *testing.T) {
	t.Run("Window", func(t *testing.T) {
		t.Run("J10 a node", testNode)
		t.Run("J10 devices", testDevices)
	})
	require.NoError(t, restart(t.Context(), "Observe"))
	t.Run("Observe", testObserve)
}

// leftInTime holds what made pods leave against the window: those of web by Tollgate's
// evictions within it, those of stuck, whose budget lets none go, by the controller of
// Kubernetes at its end.
func leftInTime(t *testing.T, namespace, controller string, tainted time.Time, web, stuck map[string]corev1.Pod) {
	t.Helper()
	var list []exit
	eventually(t, "all pods have left", func(context.Context) error {
		list = exits(t, namespace)
		if len(list) < len(web)+len(stuck) {
			return fmt.Errorf("%d of %d", len(list), len(web)+len(stuck))
		}
		return nil
	})
	require.Len(t, list, len(web)+len(stuck), "each left once: %v", list)
	for _, e := range list {
		switch after := e.at.Sub(tainted); {
		case web[e.pod].UID != "":
			require.Equal(t, account, e.user, e.pod)
			require.True(t, e.evicted, "%s: a budget was asked", e.pod)
			require.Less(t, after, window, e.pod)
			require.LessOrEqual(t, marks(t, namespace, e.pod), 1, "%s: nothing is said twice", e.pod)
		default:
			require.NotEmpty(t, stuck[e.pod].UID, "%s is a pod that came meanwhile", e.pod)
			require.Equal(t, controller, e.user, e.pod)
			require.GreaterOrEqual(t, after, window-time.Second, e.pod) // Times of taints are whole seconds.
		}
	}
}

// testNode taints a node with pods on it. The pods of one ReplicaSet may leave one at a
// time; those of another may not at all.
func testNode(t *testing.T) {
	t.Parallel()
	client, namespace := clientOf(t), namespaceOf(t)
	node := controlplane.NodeName(1)
	govern(t, "window-node", v1alpha1.TaintSelector{Key: nodeKey})
	cordon(t, client, controlplane.NodeName(2), true)
	cordon(t, client, controlplane.NodeName(3), true)
	waitKeptOff(t, namespaceOf(t), corev1.PodSpec{Affinity: on(controlplane.NodeName(2), controlplane.NodeName(3))})
	affinity := on(node, controlplane.NodeName(2), controlplane.NodeName(3))
	replicas(t, namespace, "web", 4, 0, corev1.PodSpec{Affinity: affinity})
	replicas(t, namespace, "stuck", 2, 0, corev1.PodSpec{Affinity: affinity})
	web, stuck := ready(t, namespace, "web", 4), ready(t, namespace, "stuck", 2)
	for _, pod := range web {
		require.Equal(t, node, pod.Spec.NodeName)
		require.Equal(t, fmt.Sprintf("%s=%d", nodeKey, int(window/time.Second)), pod.Annotations[v1alpha1.AnnotationWindow])
	}
	cordon(t, client, controlplane.NodeName(2), false)
	cordon(t, client, controlplane.NodeName(3), false)
	seen := watchBindings(t, namespace)

	tainted := time.Now()
	patch := `[{"op":"add","path":"/spec/taints","value":[{"key":"` + nodeKey + `","value":"disk","effect":"NoExecute"}]}]`
	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the node has a twin of the taint", func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == nodeKey && t.Value == "disk" && t.Effect == corev1.TaintEffectNoSchedule
		}) {
			err = errors.New("there is none")
		}
		return err
	})
	waitKeptOff(t, namespaceOf(t), corev1.PodSpec{Affinity: on(node)}) // or it gives it those that come in the place of others
	letGo(t, namespace, "web", 1)
	leftInTime(t, namespace, nodeController, tainted, web, stuck)
	ready(t, namespace, "web", 4)
	ready(t, namespace, "stuck", 2)
	require.Zero(t, seen.newOn(node, web, stuck), "pods do not come back")

	patch = `[{"op":"test","path":"/spec/taints/0/effect","value":"NoExecute"},{"op":"remove","path":"/spec/taints/0"}]`
	_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the twin goes with the taint", func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && (len(n.Spec.Taints) > 0 || n.Annotations[v1alpha1.AnnotationTwins] != "") {
			err = fmt.Errorf("%v %v", n.Spec.Taints, n.Annotations)
		}
		return err
	})
	patch = `{"metadata":{"annotations":{"` + v1alpha1.AnnotationTwins + `":"some=taint"}}}`
	_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.ErrorContains(t, err, "leave the annotation as it is", "nobody else says which taints are Tollgate's to remove")
}

// on returns an affinity to nodes.
func on(names ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: names,
		}}}},
	}}}
}

func cordon(t *testing.T, client kubernetes.Interface, node string, cordoned bool) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the taint of a cordoned node", func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }) != cordoned {
			err = errors.New("not as it should be")
		}
		return err
	})
}

// testDevices taints two devices of three. The pod of one of them may leave, that of the
// other, which no other device will do for, may not.
func testDevices(t *testing.T) {
	t.Parallel()
	client, namespace := clientOf(t), namespaceOf(t)
	driver := namespace + ".example.com"
	govern(t, "window-device", v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetDevice, Key: deviceKey})
	_, err := client.ResourceV1().DeviceClasses().Create(t.Context(), dra.Class(driver), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.ResourceV1().ResourceSlices().Create(t.Context(), dra.Slice(driver, "pool", dra.Device("a"), dra.Device("s")), metav1.CreateOptions{})
	require.NoError(t, err)
	anything := dra.Template("any", driver, "")
	anything.Spec.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{
		CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes[%q].name != "s"`, driver)},
	}}
	for _, template := range []*resourcev1.ResourceClaimTemplate{anything, dra.Template("s", driver, "s")} {
		created, err := client.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%s=%d", deviceKey, int(window/time.Second)), created.Spec.Annotations[v1alpha1.AnnotationWindow])
	}
	using := func(template string) corev1.PodSpec {
		return corev1.PodSpec{Affinity: on(controlplane.NodeName(4)), ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template}}}
	}
	replicas(t, namespace, "web", 1, 0, using("any"))
	replicas(t, namespace, "stuck", 1, 0, using("s"))
	web, stuck := ready(t, namespace, "web", 1), ready(t, namespace, "stuck", 1)
	_, err = client.ResourceV1().ResourceSlices().Create(t.Context(), dra.Slice(driver, "spare", dra.Device("b")), metav1.CreateOptions{})
	require.NoError(t, err)

	tainted := time.Now()
	for _, device := range []string{"a", "s"} {
		rule := dra.Rule(namespace+"-"+device, driver, dra.Taint(deviceKey, "hot", resourcev1.DeviceTaintEffectNoExecute))
		rule.Spec.DeviceSelector.Device = &device
		_, err = client.ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	waitTwins(t, namespace)
	letGo(t, namespace, "web", 1)
	leftInTime(t, namespace, deviceController, tainted, web, stuck)
	ready(t, namespace, "web", 1)
	waitsForDevice(t, namespace)
}

// waitTwins returns when the scheduler knows the twins of both rules of a test. It hears of
// rules in their order, so it knows them when it keeps pods off for one that is newer.
func waitTwins(t *testing.T, namespace string) {
	t.Helper()
	api := clientOf(t).ResourceV1()
	eventually(t, "both rules have twins", func(ctx context.Context) error {
		for _, device := range []string{"a", "s"} {
			if _, err := api.DeviceTaintRules().Get(ctx, namespace+"-"+device+"-noschedule", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	// Two devices: without the rule the second pod would be given the one that is left.
	driver, elsewhere := "newer."+namespace+".example.com", namespaceOf(t)
	_, err := api.DeviceClasses().Create(t.Context(), dra.Class(driver), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = api.ResourceSlices().Create(t.Context(), dra.Slice(driver, "pool", dra.Device("a"), dra.Device("b")), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = api.ResourceClaimTemplates(elsewhere).Create(t.Context(), dra.Template("newer", driver, ""), metav1.CreateOptions{})
	require.NoError(t, err)
	using := dra.FromTemplate(dra.Pod(""), "newer").Spec
	replicas(t, elsewhere, "first", 1, 1, corev1.PodSpec{ResourceClaims: using.ResourceClaims})
	ready(t, elsewhere, "first", 1)
	rule := dra.Rule(namespace+"-newer", driver, dra.Taint(deviceKey, "", resourcev1.DeviceTaintEffectNoSchedule))
	_, err = api.DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	waitKeptOff(t, elsewhere, using)
}

// waitsForDevice returns when the pod that needs the tainted device has waited for it so
// long that it would have been given it, were it not kept off, and no claim has a tainted
// device: those of pods that have left go after them.
func waitsForDevice(t *testing.T, namespace string) {
	t.Helper()
	const long = 3 * time.Second
	client := clientOf(t)
	look := func(ctx context.Context) (types.UID, error) {
		claims, err := client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for i := range claims.Items {
			allocation := claims.Items[i].Status.Allocation
			if allocation != nil && claims.Items[i].DeletionTimestamp == nil && allocation.Devices.Results[0].Device != "b" {
				return "", fmt.Errorf("claim %s has device %s", claims.Items[i].Name, allocation.Devices.Results[0].Device)
			}
		}
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=stuck"})
		if err != nil {
			return "", err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.NodeName != "" {
			return "", fmt.Errorf("there are %d pods: %v", len(list.Items), list.Items)
		}
		return list.Items[0].UID, nil
	}
	var waiting types.UID
	var since time.Time
	eventually(t, "the pod that needs the device waits for it, and pods do not come back to a tainted device", func(ctx context.Context) error {
		uid, err := look(ctx)
		if err != nil || uid != waiting {
			waiting, since = uid, time.Now()
		}
		if err != nil {
			return err
		}
		if waited := time.Since(since); waited < long {
			return fmt.Errorf("%s waits for no longer than %s", uid, waited)
		}
		return nil
	})
}

// testObserve taints a node where Tollgate only looks on.
func testObserve(t *testing.T) {
	namespace := namespaceOf(t)
	node := controlplane.NodeName(5)
	var said warnings
	client, err := kubernetes.NewForConfig(restConfig(&said))
	require.NoError(t, err)
	replicas(t, namespace, "web", 3, 0, corev1.PodSpec{Affinity: on(node)})
	web := ready(t, namespace, "web", 3)
	for _, pod := range web {
		require.NotContains(t, pod.Annotations, v1alpha1.AnnotationWindow, "no window is given")
	}
	patch := []byte(`[{"op":"add","path":"/spec/taints","value":[{"key":"` + nodeKey + `","effect":"NoExecute"}]}]`)
	eventually(t, "what the taint would do is foretold", func(ctx context.Context) error {
		said.clear()
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !said.contain("evicts 3 pods") {
			err = fmt.Errorf("it says %v", said.texts)
		}
		return err
	})
	_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the controller of Kubernetes deletes the pods", func(context.Context) error {
		for name := range web {
			if !slices.ContainsFunc(exits(t, namespace), func(e exit) bool { return e.pod == name }) {
				return fmt.Errorf("pod %s is there", name)
			}
		}
		return nil
	})
	for _, e := range exits(t, namespace) {
		require.Equal(t, nodeController, e.user, e.pod)
		require.False(t, e.evicted)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, n.Spec.Taints, 1, "no twin")
}

// warnings takes in what the API server warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = nil
}

func (w *warnings) contain(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.texts, func(text string) bool { return strings.Contains(text, part) })
}
