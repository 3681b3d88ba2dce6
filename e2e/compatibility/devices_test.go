package compatibility

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// deviceKey is that of the taints of devices here.
const deviceKey = "compatibility.example.com/hot"

// site is where one try of devices works: a namespace, a driver with a class and a slice,
// and the pods a and b, which have the devices of those names. Only b tolerates the taint.
type site struct {
	client            kubernetes.Interface
	namespace, driver string
	slice             *resourcev1.ResourceSlice
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteWith(t, map[string][]resourcev1.DeviceToleration{"a": nil, "b": {dra.Tolerate(deviceKey)}})
}

// nodeOfSites is the node that the pods of sites run on. No test taints it: which node a
// pod gets that may run on any differs from run to run, and its taints would evict it.
var nodeOfSites = controlplane.NodeName(8)

// newSiteWith returns a site with other pods, by the tolerations of their claims. The pods
// run: Kubernetes' own scheduler has allocated the devices.
func newSiteWith(t *testing.T, pods map[string][]resourcev1.DeviceToleration) *site {
	t.Helper()
	var published []resourcev1.Device
	for _, device := range slices.Sorted(maps.Keys(pods)) {
		published = append(published, dra.Device(device))
	}
	name, err := shared.CreateNamespace(t.Context(), "devices-")
	require.NoError(t, err)
	s := &site{client: admin(t), namespace: name, driver: name + ".example.com"}
	resources := s.client.ResourceV1()
	_, err = resources.DeviceClasses().Create(t.Context(), dra.Class(s.driver), metav1.CreateOptions{})
	require.NoError(t, err)
	s.slice, err = resources.ResourceSlices().Create(t.Context(), dra.Slice(s.driver, "pool", published...), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, resources.ResourceSlices().Delete(afterwards(t), s.slice.Name, metav1.DeleteOptions{}))
		require.NoError(t, s.client.CoreV1().Namespaces().Delete(afterwards(t), name, metav1.DeleteOptions{}))
	})
	for device, tolerations := range pods {
		claim := dra.Claim(device, s.driver, device, tolerations...)
		_, err := resources.ResourceClaims(name).Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
		pod := dra.Pod(device, device)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeOfSites}
		create(t, name, pod)
	}
	eventually(t, "the pods run", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is %s: %v", list.Items[i].Name, list.Items[i].Status.Phase, list.Items[i].Status.Conditions)
			}
		}
		return nil
	})
	return s
}

// publish publishes device a anew, with a taint, and returns what is stored. An API server
// that drops taints drops tolerations too, so b gets none.
func (s *site) publish(t *testing.T) *resourcev1.ResourceSlice {
	t.Helper()
	s.slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{dra.Taint(deviceKey, "", resourcev1.DeviceTaintEffectNoExecute)}
	stored, err := s.client.ResourceV1().ResourceSlices().Update(t.Context(), s.slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	return stored
}

// slicesEvict shows that the taints that a driver publishes evict.
func slicesEvict(t *testing.T) {
	t.Helper()
	s := newSite(t)
	require.NotNil(t, s.publish(t).Spec.Devices[0].Taints[0].TimeAdded)
	waitLeft(t, s.namespace, "b")
}

// slicesLoseTheirTaints shows that the API server drops the taints, so that there is
// nothing that Tollgate could go by.
func slicesLoseTheirTaints(t *testing.T) {
	t.Helper()
	s := newSite(t)
	require.Empty(t, s.publish(t).Spec.Devices[0].Taints)
	left, err := alive(t.Context(), s.client, s.namespace)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, left)
}

// rulesEvict shows that a DeviceTaintRule of a version evicts, and that a preview says so
// before.
func rulesEvict(version string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		s := newSite(t)
		becomes(t, "the preview counts the pod", func() error {
			out, err := command(t, "preview", "device", s.driver, deviceKey+":NoExecute")
			if err != nil {
				return err
			}
			return mentions(out, "evicts 1 pod")
		})
		apply(t, s.rule(version))
		waitLeft(t, s.namespace, "b")
	}
}

func (s *site) rule(version string) string {
	return `
apiVersion: resource.k8s.io/` + version + `
kind: DeviceTaintRule
metadata: {name: ` + s.namespace + `}
spec:
  deviceSelector: {driver: ` + s.driver + `}
  taint: {key: ` + deviceKey + `, effect: NoExecute}
`
}

// rulesSayHowFarTheyAre shows that the status of a rule is written.
func rulesSayHowFarTheyAre(version string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		s := newSite(t)
		apply(t, s.rule(version))
		mustKubectl(t, "wait", "--for=condition=EvictionInProgress=false", "--timeout="+patience.String(), "devicetaintrule/"+s.namespace)
		left, err := alive(t.Context(), s.client, s.namespace)
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, left)
	}
}

// rulesHaveNoStatus shows that a rule evicts where it cannot be told so.
func rulesHaveNoStatus(version string) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		requireState(t, "devicetaintrules/status", "unserved")
		requireSaidUnserved(t, "devicetaintrules/status")
		rulesEvict(version)(t)
	}
}

// rulesAreNotServed shows that it is said that there are no rules.
func rulesAreNotServed(t *testing.T) {
	t.Helper()
	requireState(t, "devicetaintrules", "unserved")
	requireSaidUnserved(t, "devicetaintrules")
	_, err := command(t, "taint", "device", "driver.example.com/pool/device", deviceKey+":NoExecute")
	require.ErrorContains(t, err, "DeviceTaintRules")
	mustCommand(t, "devices")
}

// patch is a ResourceSlicePatch that taints the devices of the site.
func (s *site) patch() string {
	return `
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: ` + s.namespace + `}
spec:
  devices:
    filter: {driver: ` + s.driver + `}
    taints: [{key: ` + deviceKey + `, effect: NoExecute}]
`
}

// patchesEvict shows that the taint of a ResourceSlicePatch evicts, by way of rules.
func patchesEvict(t *testing.T) {
	t.Helper()
	s := newSite(t)
	apply(t, s.patch())
	waitLeft(t, s.namespace, "b")
}

// patchesSayThatTheyCannot shows that a ResourceSlicePatch says why its taint evicts nobody.
func patchesSayThatTheyCannot(t *testing.T) {
	t.Helper()
	s := newSite(t)
	apply(t, s.patch())
	becomes(t, "the patch says so", func() error {
		return mentions(mustKubectl(t, "get", "resourceslicepatch", s.namespace, "-o", "jsonpath={.status.conditions}"),
			"RulesNotServed", "the API server does not serve DeviceTaintRules")
	})
	left, err := alive(t.Context(), s.client, s.namespace)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, left)
}
