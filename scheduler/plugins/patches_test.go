package plugins

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Each patch makes the device of node one unfit for pods that ask for an A100 with
// 40Gi, which both nodes publish; when it goes the device is fit again.
func TestSchedulerObeysResourceSlicePatches(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*v1alpha1.DevicePatch){
		"changes an attribute": func(d *v1alpha1.DevicePatch) {
			d.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{driver + "/model": {StringValue: new("V100")}}
		},
		"removes an attribute": func(d *v1alpha1.DevicePatch) {
			d.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{driver + "/model": {NullValue: &v1alpha1.NullValue{}}}
		},
		"lowers capacity": func(d *v1alpha1.DevicePatch) {
			d.Capacity = map[resourcev1.QualifiedName]v1alpha1.PatchedCapacity{driver + "/memory": {Value: new(resource.MustParse("10Gi"))}}
		},
		"taints": func(d *v1alpha1.DevicePatch) {
			d.Taints = []v1alpha1.PatchedTaint{{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		},
	}
	for name, change := range tests {
		t.Run("one that "+name, func(t *testing.T) {
			t.Parallel()
			objects := []runtime.Object{deviceClass(), node("one"), node("two")}
			for _, name := range []string{"one", "two"} {
				slice := sliceOf(name, "A100")
				slice.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}}
				objects = append(objects, slice)
			}
			h := start(t, setup{objects: objects, compile: compilePatches})
			patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "patch", UID: types.UID("uid")}}
			patch.Spec.Devices.Filter = &v1alpha1.DevicePatchFilter{Pool: new("one")}
			change(&patch.Spec.Devices)
			h.patches.Add(patch)
			require.Eventually(t, func() bool {
				slices, err := h.shared.view.ListWithDeviceTaintRules()
				require.NoError(t, err)
				published, err := h.factory.Resource().V1().ResourceSlices().Lister().Get("one")
				require.NoError(t, err)
				for _, slice := range slices {
					if slice.Name == "one" {
						return slice != published
					}
				}
				return false
			}, scheduleTimeout, time.Millisecond)

			h.createWantingMemory("first")
			h.requireOn("two", "first")
			h.createWantingMemory("second")
			h.requireParked("second")
			h.patches.Delete(patch)
			h.requireOn("one", "second")
		})
	}
}

func (h *harness) createWantingMemory(name string) {
	h.t.Helper()
	pod, claim := wanting(name, "A100")
	// An expression that fails on one device is an error for the whole pod.
	claim.Spec.Devices.Requests[0].Exactly.Selectors[0].CEL.Expression = fmt.Sprintf(
		"device.attributes[%[1]q].?model.orValue('') == 'A100' && device.capacity[%[1]q].memory.compareTo(quantity('40Gi')) >= 0", driver)
	h.create(claim)
	h.create(pod)
}

// Scores count the devices that patches leave for an extended resource. Node two has
// more as published, so the fuller node is one; with the patch it is two.
func TestScoresCountPatchedDevices(t *testing.T) {
	t.Parallel()
	const resourceName = "example.com/gpu"
	class := deviceClass()
	class.Spec.ExtendedResourceName = ptr.To(resourceName)
	class.Spec.Selectors[0].CEL.Expression = fmt.Sprintf("device.driver == %q && device.attributes[%q].model == 'A100'", driver, driver)
	fuller := shipped(t, "default-profile.yaml") + `    pluginConfig:
      - name: PatchedNodeResourcesFit
        args:
          scoringStrategy: {type: MostAllocated, resources: [{name: example.com/gpu, weight: 1}]}
`
	for name, test := range map[string]struct {
		patched bool
		want    string
	}{
		"as published":   {want: "one"},
		"with the patch": {patched: true, want: "two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []runtime.Object{class.DeepCopy(), node("one"), node("two")}
			for name, count := range map[string]int{"one": 4, "two": 8} {
				slice := sliceOf(name, "A100")
				for i := 1; i < count; i++ {
					device := slice.Spec.Devices[0].DeepCopy()
					device.Name = fmt.Sprint("gpu-", i)
					slice.Spec.Devices = append(slice.Spec.Devices, *device)
				}
				objects = append(objects, slice)
			}
			h := start(t, setup{profiles: fuller, objects: objects, compile: compilePatches})
			if test.patched {
				for i := 1; i < 8; i++ {
					patch := modelPatch("two", "V100", 1)
					patch.Name, patch.UID = fmt.Sprint("gpu-", i), types.UID(fmt.Sprint("uid-", i))
					patch.Spec.Devices.Filter.Device = new(patch.Name)
					h.patches.Add(patch)
				}
				require.Eventually(t, func() bool {
					slices, err := h.shared.view.ListWithDeviceTaintRules()
					require.NoError(t, err)
					left := 0
					for _, slice := range slices {
						for i := range slice.Spec.Devices {
							if *slice.Spec.Devices[i].Attributes["model"].StringValue == "A100" {
								left++
							}
						}
					}
					return left == 5
				}, scheduleTimeout, time.Millisecond)
			}
			pod, _ := wanting("pod", "")
			pod.Spec.ResourceClaims = nil
			one := corev1.ResourceList{resourceName: resource.MustParse("1")}
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
			h.create(pod)
			h.requireOn(test.want, "pod")
		})
	}
}

// The patch does both: the gate leaves its taint.
func TestWithoutTheGateForAttributesPatchesDoNothingButTaint(t *testing.T) {
	t.Parallel()
	h := start(t, setup{objects: []runtime.Object{deviceClass(), node("one"), sliceOf("one", "A100")}, compile: compilePatches, taintsOnly: true})
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "patch", UID: types.UID("uid")}}
	patch.Spec.Devices.Filter = &v1alpha1.DevicePatchFilter{Pool: new("one")}
	patch.Spec.Devices.Attributes = map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{driver + "/model": {StringValue: new("V100")}}
	patch.Spec.Devices.Capacity = map[resourcev1.QualifiedName]v1alpha1.PatchedCapacity{driver + "/memory": {Value: new(resource.MustParse("1Gi"))}}
	patch.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{Key: "example.com/hot", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	h.patches.Add(patch)
	published, err := h.factory.Resource().V1().ResourceSlices().Lister().Get("one")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		slices, err := h.shared.view.ListWithDeviceTaintRules()
		require.NoError(t, err)
		require.Len(t, slices, 1)
		require.Equal(t, published.Spec.Devices[0].Attributes, slices[0].Spec.Devices[0].Attributes)
		require.Equal(t, published.Spec.Devices[0].Capacity, slices[0].Spec.Devices[0].Capacity)
		return len(slices[0].Spec.Devices[0].Taints) == 1
	}, scheduleTimeout, time.Millisecond)
}
