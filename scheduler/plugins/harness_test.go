package plugins

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

const (
	driver    = "gpu.example.com"
	className = "gpu.example.com"
	namespace = "default"
	// scheduleTimeout is how long a pod that can be scheduled may wait. It is below what
	// anything but an event needs: pods are not flushed in these tests.
	scheduleTimeout = time.Minute
)

// profiles is the configuration of a default scheduler that sees patches.
const profiles = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        disabled: [{name: DynamicResources}]
        enabled:
          - {name: PatchedDynamicResources, weight: 2}`

func configuration(tb testing.TB, text string) *schedulerconfig.KubeSchedulerConfiguration {
	tb.Helper()
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	require.NoError(tb, err)
	config, ok := object.(*schedulerconfig.KubeSchedulerConfiguration)
	require.True(tb, ok)
	return config
}

// harness is kube-scheduler over a fake API server.
type harness struct {
	t          testing.TB
	client     *fake.Clientset
	patches    *cachetesting.FakeControllerSource
	scheduler  *scheduler.Scheduler
	factory    informers.SharedInformerFactory
	shared     *shared
	versions   *versions
	taintsOnly bool
	// patched are the pools that have a patch.
	patched map[string]bool
	// bound is called for each pod that is bound, if it is set.
	bound  func()
	ctx    context.Context //nolint:containedctx // What ends the scheduler.
	cancel context.CancelFunc
}

type setup struct {
	profiles string
	// compile is what the patches do; that of the tests where it is nil.
	compile compileFunc
	// plugins are registered beside ours.
	plugins frameworkruntime.Registry
	// handle wraps what our plugins are given.
	handle  func(fwk.Handle) fwk.Handle
	objects []runtime.Object
	// unpatched is set where no profile has our plugins.
	unpatched bool
	// taintsOnly is the feature gate of attributes and capacity off.
	taintsOnly bool
}

func start(tb testing.TB, s setup) *harness {
	tb.Helper()
	h := ready(tb, s)
	tb.Cleanup(h.run())
	return h
}

// ready makes a scheduler that knows all that there is and does not schedule yet.
func ready(tb testing.TB, s setup) *harness {
	tb.Helper()
	h, err := newScheduler(tb, s)
	require.NoError(tb, err)
	h.ctx, h.cancel = context.WithCancel(tb.Context())
	h.factory.Start(h.ctx.Done())
	h.factory.WaitForCacheSync(h.ctx.Done())
	require.NoError(tb, h.scheduler.WaitForHandlersSync(h.ctx))
	h.requireWatched()
	if !s.unpatched {
		// The first set is waited for, so it is made before what a test makes slow.
		_, err = h.shared.view.ListWithDeviceTaintRules()
		require.NoError(tb, err)
	}
	return h
}

// requireWatched waits until all that was listed is watched: who has listed and does not watch
// yet is not told by the fake API server of what is deleted meanwhile.
func (h *harness) requireWatched() {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		unwatched := map[string]bool{}
		for _, action := range h.client.Actions() {
			switch action.GetVerb() {
			case "list":
				unwatched[action.GetResource().Resource] = true
			case "watch":
				delete(unwatched, action.GetResource().Resource)
			}
		}
		return len(unwatched) == 0
	}, scheduleTimeout, time.Millisecond, "not all that is listed is watched")
}

// run schedules until what it returns is called, which is once.
func (h *harness) run() (stop func()) {
	var running sync.WaitGroup
	running.Go(func() { h.scheduler.Run(h.ctx) })
	return func() {
		h.cancel()
		running.Wait()
		h.factory.Shutdown()
	}
}

// newScheduler makes a scheduler that does not run yet.
func newScheduler(tb testing.TB, s setup) (*harness, error) {
	tb.Helper()
	if s.compile == nil {
		s.compile = compileForTest
	}
	if s.profiles == "" {
		s.profiles = profiles
	}
	h := &harness{t: tb, patches: cachetesting.NewFakeControllerSource(), versions: &versions{}, patched: map[string]bool{}, taintsOnly: s.taintsOnly}
	h.shared = &shared{informer: h.informer, leases: h.leases, compile: s.compile}
	h.client = fake.NewSimpleClientset()
	h.client.PrependReactor("create", "pods", h.bind)
	h.client.PrependReactor("*", "*", h.versions.stamp)
	for _, object := range s.objects {
		h.create(object)
	}

	plugins := h.shared.registry()
	for name, factory := range plugins {
		plugins[name] = func(ctx context.Context, args runtime.Object, stock fwk.Handle) (fwk.Plugin, error) {
			if s.handle != nil {
				stock = s.handle(stock)
			}
			return factory(ctx, args, stock)
		}
	}
	require.NoError(tb, plugins.Merge(s.plugins))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: h.client.EventsV1()})
	tb.Cleanup(broadcaster.Shutdown)
	h.factory = scheduler.NewInformerFactory(h.client, 0, nil)
	var err error
	h.scheduler, err = scheduler.New(tb.Context(), h.client, h.factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(configuration(tb, s.profiles).Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins),
		scheduler.WithKubeConfig(&rest.Config{}),
		// No pod is saved by the flush of those that wait too long.
		scheduler.WithPodMaxInUnschedulablePodsDuration(time.Hour),
		scheduler.WithPodInitialBackoffSeconds(1),
		scheduler.WithPodMaxBackoffSeconds(1),
	)
	return h, err
}

func (h *harness) informer(_ *rest.Config, factory informers.SharedInformerFactory) (cache.SharedIndexInformer, error) {
	return addInformer(factory, h.patches, !h.taintsOnly)
}

func (h *harness) leases(*rest.Config) (coordinationclient.LeasesGetter, error) {
	return h.client.CoordinationV1(), nil
}

// versions gives objects what the fake API server does not: a UID, and a version that
// the scheduler's cache of claims compares.
type versions struct {
	lock sync.Mutex
	last int
}

func (v *versions) stamp(action clienttesting.Action) (bool, runtime.Object, error) {
	var object runtime.Object
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		object = action.Object
	case clienttesting.UpdateActionImpl:
		object = action.Object
	default:
		return false, nil, nil
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	v.last++
	if accessor, err := meta.Accessor(object); err == nil && action.GetSubresource() != "binding" {
		accessor.SetResourceVersion(strconv.Itoa(v.last))
		if accessor.GetName() == "" {
			accessor.SetName(accessor.GetGenerateName() + strconv.Itoa(v.last))
		}
		if accessor.GetUID() == "" {
			accessor.SetUID(types.UID("uid-" + strconv.Itoa(v.last)))
		}
	}
	return false, nil, nil
}

// bind does what the API server does with a binding.
func (h *harness) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding, ok := create.GetObject().(*corev1.Binding)
	if !ok {
		return true, nil, fmt.Errorf("binding is a %T", create.GetObject())
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	object, err := h.client.Tracker().Get(pods, action.GetNamespace(), binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.DeepCopyObject().(*corev1.Pod) //nolint:forcetypeassert // The tracker keeps pods as such.
	pod.Spec.NodeName = binding.Target.Name
	if err := h.client.Tracker().Update(pods, pod, action.GetNamespace()); err != nil {
		return true, nil, err
	}
	if h.bound != nil {
		h.bound()
	}
	return true, binding, nil
}

func (h *harness) create(object runtime.Object) {
	h.t.Helper()
	var err error
	ctx, options := h.t.Context(), metav1.CreateOptions{}
	switch object := object.(type) {
	case *corev1.Node:
		_, err = h.client.CoreV1().Nodes().Create(ctx, object, options)
	case *corev1.Pod:
		_, err = h.client.CoreV1().Pods(namespace).Create(ctx, object, options)
	case *resourcev1.ResourceClaim:
		_, err = h.client.ResourceV1().ResourceClaims(namespace).Create(ctx, object, options)
	case *resourcev1.ResourceSlice:
		_, err = h.client.ResourceV1().ResourceSlices().Create(ctx, object, options)
	case *resourcev1.DeviceTaintRule:
		_, err = h.client.ResourceV1().DeviceTaintRules().Create(ctx, object, options)
	case *resourcev1.DeviceClass:
		_, err = h.client.ResourceV1().DeviceClasses().Create(ctx, object, options)
	default:
		err = fmt.Errorf("object is a %T", object)
	}
	require.NoError(h.t, err)
}

// write creates or updates a slice.
func (h *harness) write(slice *resourcev1.ResourceSlice) {
	h.t.Helper()
	_, err := h.client.ResourceV1().ResourceSlices().Update(h.t.Context(), slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		h.create(slice)
		return
	}
	require.NoError(h.t, err)
}

// node is where the pod runs, or "".
func (h *harness) node(pod string) string {
	h.t.Helper()
	found, err := h.client.CoreV1().Pods(namespace).Get(h.t.Context(), pod, metav1.GetOptions{})
	require.NoError(h.t, err)
	return found.Spec.NodeName
}

func (h *harness) requireOn(node, pod string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.node(pod) != "" }, scheduleTimeout, 10*time.Millisecond, "pod %s waits", pod)
	require.Equal(h.t, node, h.node(pod), "node of pod %s", pod)
}

// requireParked waits until the pod has been tried and waits for an event. One that
// was not tried, because its claim is not known yet, is in the same queue.
func (h *harness) requireParked(pod string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		found, err := h.client.CoreV1().Pods(namespace).Get(h.t.Context(), pod, metav1.GetOptions{})
		require.NoError(h.t, err)
		tried := slices.ContainsFunc(found.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
		return tried && slices.ContainsFunc(h.scheduler.SchedulingQueue.UnschedulablePods(), func(parked *corev1.Pod) bool {
			return parked.Name == pod
		})
	}, scheduleTimeout, 10*time.Millisecond, "pod %s is not parked", pod)
}

func node(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

func deviceClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
		}}},
	}
}

// sliceOf is a pool of a node, with one device that has a model.
func sliceOf(node, model string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: new(node),
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{
				Name: "gpu-0",
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"model": {StringValue: new(model)},
				},
			}},
		},
	}
}

// wanting are a claim for a device of a model, and a pod that uses it.
func wanting(name, model string) (*corev1.Pod, *resourcev1.ResourceClaim) {
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu",
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: className, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
					Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver, model),
				}}},
			},
		}}}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			SchedulerName:  corev1.DefaultSchedulerName,
			Containers:     []corev1.Container{{Name: "main", Image: "image"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new(name)}},
		},
	}
	return pod, claim
}

func (h *harness) createWanting(name, model string) {
	h.t.Helper()
	pod, claim := wanting(name, model)
	h.create(claim)
	h.create(pod)
}

// modelPatch gives the devices of a pool a model.
func modelPatch(pool, model string, generation int64) *v1alpha1.ResourceSlicePatch {
	return &v1alpha1.ResourceSlicePatch{
		ObjectMeta: metav1.ObjectMeta{Name: pool, UID: types.UID("uid-" + pool), Generation: generation},
		Spec: v1alpha1.ResourceSlicePatchSpec{Devices: v1alpha1.DevicePatch{
			Filter: &v1alpha1.DevicePatchFilter{Pool: new(pool)},
			Attributes: map[resourcev1.QualifiedName]v1alpha1.NullableDeviceAttribute{
				driver + "/model": {StringValue: new(model)},
			},
		}},
	}
}

// models is what modelPatches do: the model by pool.
type models map[string]string

func (m models) Apply(slice *resourcev1.ResourceSlice, _ sliceview.Patched) sliceview.Patched {
	model, found := m[slice.Spec.Pool.Name]
	if !found {
		return sliceview.Patched{Slice: slice}
	}
	patched := slice.DeepCopy()
	for i := range patched.Spec.Devices {
		patched.Spec.Devices[i].Attributes["model"] = resourcev1.DeviceAttribute{StringValue: new(model)}
	}
	return sliceview.Patched{Slice: patched}
}

func (models) Has(types.UID) bool { return true }

// compileForTest knows modelPatches only. With a class in the filter, the patch
// applies while there is that class.
func compileForTest(patches []*v1alpha1.ResourceSlicePatch, class findClass, _ patchSet) patchSet {
	set := models{}
	for _, patch := range patches {
		filter := patch.Spec.Devices.Filter
		if filter.DeviceClassName != nil && class(*filter.DeviceClassName) == nil {
			continue
		}
		for name, attribute := range patch.Spec.Devices.Attributes {
			if strings.HasSuffix(string(name), "/model") {
				set[*filter.Pool] = *attribute.StringValue
			}
		}
	}
	return set
}

// requireView waits until the devices have these models, in the order of their pools.
func (h *harness) requireView(models ...string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		patched, err := h.shared.view.ListWithDeviceTaintRules()
		require.NoError(h.t, err)
		slices.SortFunc(patched, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		var now []string
		for _, slice := range patched {
			now = append(now, *slice.Spec.Devices[0].Attributes["model"].StringValue)
		}
		return slices.Equal(models, now)
	}, scheduleTimeout, 10*time.Millisecond, "models %v", models)
}
