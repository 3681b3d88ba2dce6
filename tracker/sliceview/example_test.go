package sliceview_test

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// A scheduler or an autoscaler reads slices from a View in the place of an informer. In a
// program, View.Attach and View.AttachPatches subscribe it to informers, and View.Run
// tells handlers of what changes; here it is fed by hand.
func Example() {
	view := sliceview.New()
	view.SetSlice(&resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "node-7-gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com",
			Pool:   resourcev1.ResourcePool{Name: "node-7", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{
				{Name: "gpu-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new("A100")}}},
				{Name: "gpu-1", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new("H100")}}},
			},
		},
	})
	view.SetPatch(&v1alpha1.ResourceSlicePatch{
		ObjectMeta: metav1.ObjectMeta{Name: "racks"},
		Spec: v1alpha1.ResourceSlicePatchSpec{Devices: v1alpha1.DevicePatch{
			Filter: &v1alpha1.DevicePatchFilter{Selectors: []v1alpha1.PatchedDeviceSelector{
				{CEL: &v1alpha1.CELDeviceSelector{Expression: "device.attributes['gpu.example.com'].model == 'A100'"}},
			}},
			Attributes: map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{"example.com/rack": {StringValue: new("7")}},
			Taints:     []v1alpha1.PatchedTaint{{Key: "example.com/overheating", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
		}},
	})

	slices, err := view.Lister().List(labels.Everything())
	if err != nil {
		fmt.Println(err)
	}
	for _, slice := range slices {
		for _, device := range slice.Spec.Devices {
			rack, known := device.Attributes["example.com/rack"]
			if known {
				fmt.Printf("%s is in rack %s and has %d taint\n", device.Name, *rack.StringValue, len(device.Taints))
			} else {
				fmt.Printf("%s is as its driver published it\n", device.Name)
			}
		}
	}
	report, _ := view.Report("racks", 8)
	fmt.Println("the patch is meant for", report.FirstMatched)
	// Output:
	// gpu-0 is in rack 7 and has 1 taint
	// gpu-1 is as its driver published it
	// the patch is meant for [gpu.example.com/node-7/gpu-0]
}
