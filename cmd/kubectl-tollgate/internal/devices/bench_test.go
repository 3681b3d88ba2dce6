package devices

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// BenchmarkDevices shows 100 nodes of 64 devices, with a claim on each, ten attributes
// each and a patch with an expression over all of them.
func BenchmarkDevices(b *testing.B) {
	const nodes, devices = 100, 64
	for name, write := range map[string]func(context.Context, *Inventory) error{
		"table": func(ctx context.Context, v *Inventory) error { return v.WriteTable(ctx, io.Discard, false) },
		"wide":  func(ctx context.Context, v *Inventory) error { return v.WriteTable(ctx, io.Discard, true) },
		"yaml":  func(ctx context.Context, v *Inventory) error { return v.WriteYAML(ctx, io.Discard) },
		"json":  func(ctx context.Context, v *Inventory) error { return v.WriteJSON(ctx, io.Discard) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				v := NewTable(Filter{})
				for i := range nodes {
					addNode(v, fmt.Sprintf("node-%d", i), devices)
				}
				patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
				require.NoError(b, yaml.Unmarshal([]byte(`{devices: {filter: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}, attributes: {example.com/rack: {string: "7"}}}}`), &patch.Spec))
				v.AddPatch(patch)
				before := inUse()
				b.StartTimer()
				require.NoError(b, write(b.Context(), v))
				b.StopTimer()
				b.ReportMetric(float64(before)/(1<<20), "MiB-read")
				b.ReportMetric(float64(inUse())/(1<<20), "MiB-after")
				runtime.KeepAlive(v)
				b.StartTimer()
			}
		})
	}
}

func inUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// addNode adds a node with a pool of its own.
func addNode(v *Inventory, node string, devices int) {
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range devices {
		device := resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		}
		for attribute := range 10 {
			device.Attributes[resourcev1.QualifiedName(fmt.Sprintf("attribute-%d", attribute))] = resourcev1.DeviceAttribute{StringValue: new(fmt.Sprintf("value-%d", i))}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: node + "-" + device.Name}}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Driver: slice.Spec.Driver, Pool: node, Device: device.Name}},
		}}
		claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: claim.Name}}
		v.AddClaim(claim)
	}
	v.AddSlice(slice)
}
