package sliceview_test

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// A View is put between informers and whoever reads slices. The clients here are fakes; a
// program makes its own with kubernetes.NewForConfig and dynamic.NewForConfig. It needs the
// right to list and watch all four kinds.
func Example_informers() {
	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset(gpusOfNode7(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "a100"},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: "device.attributes['gpu.example.com'].model == 'A100'"}},
		}},
	})
	kinds := map[schema.GroupVersionResource]string{patchResource: "ResourceSlicePatchList"}
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	_, err := custom.Resource(patchResource).Create(ctx, memoryOfA100s(), metav1.CreateOptions{})
	must(err)

	view := sliceview.New()
	factory := informers.NewSharedInformerFactory(client, 0)
	resources := factory.Resource().V1()
	patches := dynamicinformer.NewFilteredDynamicInformer(custom, patchResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	must(patches.SetTransform(typedPatch))
	// Where DeviceTaintRules are not served, nil takes the place of their informer.
	must(view.Attach(resources.ResourceSlices().Informer(), resources.DeviceTaintRules().Informer()))
	must(view.AttachPatches(patches, resources.DeviceClasses().Informer()))

	// What hangs on slices is told of them as they have to be seen, now and later.
	_, err = view.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
	must(err)
	factory.Start(ctx.Done())
	go patches.RunWithContext(ctx)
	ended := make(chan error)
	go func() { ended <- view.Run(ctx) }()
	cache.WaitForCacheSync(ctx.Done(), view.HasSynced)

	for _, slice := range view.List() {
		for _, device := range slice.Spec.Devices {
			memory := device.Capacity["memory"].Value
			fmt.Println(device.Name, "has", memory.String())
		}
		explained, _ := view.Explain(slice.Name)
		for _, value := range explained[0].Capacity {
			fmt.Printf("%s of %s is %s, by patch %s; its driver published %s\n",
				value.Name, explained[0].Device, value.Now.Value.String(), value.Patch, value.Published.Value.String())
		}
	}
	stop()
	must(<-ended)
	// Output:
	// gpu-0 has 72Gi
	// gpu-1 has 80Gi
	// memory of gpu.example.com/node-7/gpu-0 is 72Gi, by patch bad-memory; its driver published 80Gi
}

var patchResource = v1alpha1.GroupVersion.WithResource("resourceslicepatches")

// typedPatch gives a dynamic informer of patches the type that a View reads.
func typedPatch(object any) (any, error) {
	patch, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	typed := &v1alpha1.ResourceSlicePatch{}
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(patch.Object, typed)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func gpusOfNode7() *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "node-7-gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver:  "gpu.example.com",
			Pool:    resourcev1.ResourcePool{Name: "node-7", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{gpu("gpu-0", "A100"), gpu("gpu-1", "H100")},
		},
	}
}

func memoryOfA100s() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ResourceSlicePatch",
		"metadata": map[string]any{"name": "bad-memory"},
		"spec": map[string]any{"devices": map[string]any{
			"filter":   map[string]any{"deviceClassName": "a100"},
			"capacity": map[string]any{"gpu.example.com/memory": map[string]any{"value": "72Gi"}},
		}},
	}}
}

func gpu(name, model string) resourcev1.Device {
	return resourcev1.Device{
		Name:       name,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
	}
}
