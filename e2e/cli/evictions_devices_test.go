package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// TestTheObjectThatSomebodyWroteIsNamed shows pods that have to leave because of a rule, of
// a patch, and of what a driver published.
func TestTheObjectThatSomebodyWroteIsNamed(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfDevices)
	driver := s.namespace + ".example.com"
	s.create(t, policy("p", "paused: true")) // With a longer name the line of a table would be cut.
	s.createUsers(t, driver)
	s.waitPods(t, 3)
	rule := dra.Rule(s.namespace+"-rule", driver, dra.Taint(key, "", resourcev1.DeviceTaintEffectNoExecute))
	rule.Spec.DeviceSelector.Device = new("d0")
	rules := s.pods.ResourceV1().DeviceTaintRules()
	_, err := rules.Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	s.create(t, "apiVersion: tollgate.dev/v1alpha1\nkind: ResourceSlicePatch\nmetadata: {name: NAMESPACE-patch}\nspec: {devices: {filter: {driver: "+driver+
		", device: d1}, taints: [{key: KEY, value: moved, effect: NoExecute}]}}")
	s.publish(t, driver)

	found := s.waitStates(t, map[string]int{"Paused": 3})
	require.Equal(t, s.text("DeviceTaintRule/NAMESPACE-rule"), found["d0"].Taints[0].Source)
	require.Equal(t, driver+"/pool/d0", found["d0"].Taints[0].Device)
	require.Equal(t, s.text("ResourceSlicePatch/NAMESPACE-patch"), found["d1"].Taints[0].WrittenFor)
	require.Equal(t, "ResourceSlice/"+driver+"-pool", found["d2"].Taints[0].Source)
	for filter, want := range map[string]string{
		"--rule NAMESPACE-rule": "d0", "--patch NAMESPACE-patch": "d1",
	} {
		require.Equal(t, s.namespace+"/"+want+"\n", s.does(t, "evictions "+filter+" -o name").out)
	}
	require.Contains(t, s.does(t, "evictions -n NAMESPACE").out, s.text("moved of patch/NAMESPACE-patch; policy NAMESPACE-p is paused"))

	require.NoError(t, rules.Delete(t.Context(), rule.Name, metav1.DeleteOptions{}))
	s.waitStates(t, map[string]int{"Paused": 2})
}

// createUsers creates a driver with three devices, and a pod for each.
func (s *evictionSite) createUsers(t *testing.T, driver string) {
	t.Helper()
	client := s.pods.ResourceV1()
	_, err := client.DeviceClasses().Create(t.Context(), dra.Class(driver), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.ResourceSlices().Create(t.Context(), dra.Slice(driver, "pool", dra.Device("d0"), dra.Device("d1"), dra.Device("d2")), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"d0", "d1", "d2"} {
		_, err := client.ResourceClaims(s.namespace).Create(t.Context(), dra.Claim(name, driver, name), metav1.CreateOptions{})
		require.NoError(t, err)
		user := dra.Pod(name, name)
		user.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
		_, err = s.pods.CoreV1().Pods(s.namespace).Create(t.Context(), user, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// publish has the driver taint its third device.
func (s *evictionSite) publish(t *testing.T, driver string) {
	t.Helper()
	slices := s.pods.ResourceV1().ResourceSlices()
	slice, err := slices.Get(t.Context(), driver+"-pool", metav1.GetOptions{})
	require.NoError(t, err)
	slice.Spec.Pool.Generation++
	slice.Spec.Devices[2] = dra.Device("d2", dra.Taint(key, "", resourcev1.DeviceTaintEffectNoExecute))
	_, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{})
	require.NoError(t, err)
}
