package informer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// typical returns a pod as a Deployment makes them.
func typical(i int) *corev1.Pod {
	now := metav1.NewTime(noon.Add(time.Duration(i) * time.Second))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%50), Name: fmt.Sprintf("web-7c5ddbdf54-%05d", i),
			UID: types.UID(fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", i)), ResourceVersion: strconv.Itoa(1000 + i), Generation: 1,
			CreationTimestamp: now,
			Labels:            map[string]string{"app": "web", "pod-template-hash": "7c5ddbdf54"},
			Annotations:       map[string]string{"checksum/config": strings.Repeat("a", 64)},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7c5ddbdf54", UID: "owner", Controller: new(true)}},
			ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 1500))}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i%100), ServiceAccountName: "web", PriorityClassName: "high",
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now},
	}
	for c := range 2 {
		container := corev1.Container{
			Name: fmt.Sprintf("c%d", c), Image: "registry.example.com/web:v1.2.3", Command: []string{"/bin/web", "--serve"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}
		for e := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("KEY_%d_%d", i, e), Value: fmt.Sprintf("value-%d-%d", i, e)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, ImageID: "sha256:" + strings.Repeat("b", 64), ContainerID: fmt.Sprintf("containerd://%064d", i),
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.ContainersReady, corev1.PodInitialized} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return p
}

// claimant returns typical(i) with a claim that was generated for it.
func claimant(i int) *corev1.Pod {
	p := typical(i)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new(p.Name + "-gpu-x7k2p")}}
	return p
}

// claimed returns the claim that was generated for typical(i), with one device.
func claimed(i int) *resourcev1.ResourceClaim {
	pod := typical(i)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name + "-gpu-x7k2p", UID: types.UID(fmt.Sprintf("c1a1b2c3-0000-4000-8000-%012d", i)), ResourceVersion: strconv.Itoa(2000 + i),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true), BlockOwnerDeletion: new(true)}},
			Finalizers:      []string{"resource.kubernetes.io/delete-protection"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kube-scheduler", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 800))}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com", Count: 1},
		}}}},
		Status: resourcev1.ResourceClaimStatus{
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: "gpu.example.com", Pool: fmt.Sprintf("node-%d", i%100), Device: fmt.Sprintf("gpu-%d", i%128),
				Tolerations: []resourcev1.DeviceToleration{{Key: "gpu.example.com/unhealthy", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(300))}},
			}}}},
		},
	}
}

// published returns a slice of as many devices as fit, some of them tainted.
func published(i int) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d-gpu.example.com-x7k2p", i), UID: types.UID(fmt.Sprintf("51ce0000-0000-4000-8000-%012d", i)), ResourceVersion: strconv.Itoa(3000 + i)},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: new(fmt.Sprintf("node-%d", i)),
			Pool: resourcev1.ResourcePool{Name: fmt.Sprintf("node-%d", i), Generation: 1, ResourceSliceCount: 1},
		},
	}
	for d := range 128 {
		device := resourcev1.Device{Name: fmt.Sprintf("gpu-%d", d), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
		for a := range 8 {
			device.Attributes[resourcev1.QualifiedName(fmt.Sprintf("attribute-%d", a))] = resourcev1.DeviceAttribute{StringValue: new(fmt.Sprintf("value-%d-%d", d, a))}
		}
		if i%16 == 0 && d < 64 {
			device.Taints = []resourcev1.DeviceTaint{{Key: "gpu.example.com/unhealthy", Value: "ecc", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(noon))}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

// ruled returns a rule as the dynamic client decodes it.
func ruled(t *testing.T, version string, rule *resourcev1.DeviceTaintRule) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	require.NoError(t, err)
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion("resource.k8s.io/" + version)
	object.SetKind("DeviceTaintRule")
	return object
}

func TestWhatIsKeptLeadsToTheSameDecisions(t *testing.T) {
	t.Parallel()

	t.Run("pods", func(t *testing.T) {
		t.Parallel()
		keep := keepPods()
		for _, change := range []func(*corev1.Pod){
			func(*corev1.Pod) {},
			func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" },
			func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationWindow] = "gpu=60" },
			func(p *corev1.Pod) { p.Spec.PriorityClassName = "" },
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			func(p *corev1.Pod) { p.Labels, p.OwnerReferences, p.Spec.ServiceAccountName = nil, nil, "" },
			func(p *corev1.Pod) { p.Labels["statefulset.kubernetes.io/pod-name"] = p.Name },
			func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) },
			func(p *corev1.Pod) { p.Status.Conditions = nil },
			func(p *corev1.Pod) { p.Status.Conditions, p.Status.StartTime = nil, nil },
			func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil },
			func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "r", Message: "m"})
			},
			func(p *corev1.Pod) {
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("gang")}
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{
					{Name: "a", ResourceClaimName: new("shared")},
					{Name: "b", ResourceClaimTemplateName: new("template")},
					{Name: "c", ResourceClaimTemplateName: new("template")},
				}
				p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: new("web-b")}, {Name: "c"}}
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "web-extended"}
			},
		} {
			p := typical(1)
			change(p)
			want := tracker.PodOf(p)
			kept, err := keep(p)
			require.NoError(t, err)
			got, ok := read(kept, tracker.PodOf)
			require.True(t, ok)
			require.Equal(t, want, got)
			requireKeptAs(t, p, kept, keep)
		}
	})

	t.Run("a condition that is kept does not hold on to the others", func(t *testing.T) {
		t.Parallel()
		p := typical(1)
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
		kept, err := keepPods()(p)
		require.NoError(t, err)
		got, ok := read(kept, tracker.PodOf)
		require.True(t, ok)
		require.NotSame(t, &p.Status.Conditions[len(p.Status.Conditions)-1], got.Disruption)
	})

	t.Run("claims", func(t *testing.T) {
		t.Parallel()
		keep := keepClaims()
		for _, change := range []func(*resourcev1.ResourceClaim){
			func(*resourcev1.ResourceClaim) {},
			func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil },
			func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil },
			func(c *resourcev1.ResourceClaim) { c.OwnerReferences = nil },
			func(c *resourcev1.ResourceClaim) {
				c.Annotations = map[string]string{v1alpha1.AnnotationWindow: "gpu=60"}
			},
			func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor[0].UID = "another" },
			func(c *resourcev1.ResourceClaim) {
				c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: "p", Device: "x"})
			},
		} {
			claim := claimed(1)
			change(claim)
			want := tracker.ClaimOf(claim)
			if want.Controller != nil {
				// Nothing asks for it.
				want.Controller = want.Controller.DeepCopy()
				want.Controller.BlockOwnerDeletion = nil
			}
			kept, err := keep(claim)
			require.NoError(t, err)
			got, ok := read(kept, tracker.ClaimOf)
			require.True(t, ok)
			require.Equal(t, want, got)
			requireKeptAs(t, claim, kept, keep)
		}
	})

	t.Run("slices", func(t *testing.T) {
		t.Parallel()
		slice, keep := published(0), keepSlices()
		want := tracker.SliceOf(slice)
		kept, err := keep(slice)
		require.NoError(t, err)
		got, ok := read(kept, tracker.SliceOf)
		require.True(t, ok)
		require.Equal(t, want, got)
		requireKeptAs(t, slice, kept, keep)
	})

	t.Run("budgets", func(t *testing.T) {
		t.Parallel()
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", UID: "u", ResourceVersion: "7"}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		keep := transform(tracker.BudgetOf)
		kept, err := keep(budget)
		require.NoError(t, err)
		got, ok := read(kept, tracker.BudgetOf)
		require.True(t, ok)
		require.Equal(t, tracker.BudgetOf(budget), got)
		requireKeptAs(t, budget, kept, keep)
	})

	t.Run("nodes", func(t *testing.T) {
		t.Parallel()
		node, keep := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{corev1.LabelHostname: "n", "pool": "banana"},
		}}, keepNodes()
		node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoExecute}}
		kept, err := keep(node)
		require.NoError(t, err)
		got, ok := read(kept, tracker.NodeOf)
		require.True(t, ok)
		require.Equal(t, tracker.NodeOf(node), got)
		requireKeptAs(t, node, kept, keep)
	})

	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run("VS-02 rules in "+version, func(t *testing.T) {
			t.Parallel()
			rule := &resourcev1.DeviceTaintRule{
				ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", ResourceVersion: "9", Generation: 3, CreationTimestamp: metav1.NewTime(noon.Local())},
				Spec: resourcev1.DeviceTaintRuleSpec{
					DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("p")},
					Taint:          resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(noon.Local()))},
				},
				Status: resourcev1.DeviceTaintRuleStatus{Conditions: []metav1.Condition{{Type: "EvictionInProgress", Status: metav1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(noon.Local())}}},
			}
			object, keep := ruled(t, version, rule), keepRules()
			kept, err := keep(object)
			require.NoError(t, err)
			got, ok := read(kept, tracker.RuleOf)
			require.True(t, ok)
			require.Equal(t, tracker.RuleOf(rule), got)
			requireKeptAs(t, object, kept, keep)
		})
	}

	t.Run("a rule that cannot be read is an error, not a rule without effect", func(t *testing.T) {
		t.Parallel()
		_, err := keepRules()(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r"}, "spec": "?"}})
		require.ErrorContains(t, err, "read DeviceTaintRule r: ")
	})
}

// requireKeptAs asks of what is kept what a store asks of it, and that it passes
// the transform unchanged.
func requireKeptAs(t *testing.T, original, kept any, keep toolscache.TransformFunc) {
	t.Helper()
	want, err := toolscache.MetaNamespaceKeyFunc(original)
	require.NoError(t, err)
	key, err := toolscache.MetaNamespaceKeyFunc(kept)
	require.NoError(t, err)
	require.Equal(t, want, key)
	before, err := meta.Accessor(original)
	require.NoError(t, err)
	after, err := meta.Accessor(kept)
	require.NoError(t, err)
	require.Equal(t, before.GetUID(), after.GetUID())
	require.Equal(t, before.GetResourceVersion(), after.GetResourceVersion())
	again, err := keep(kept)
	require.NoError(t, err)
	require.Same(t, kept, again)
	tombstone := toolscache.DeletedFinalStateUnknown{Key: key, Obj: kept}
	again, err = keep(tombstone)
	require.NoError(t, err)
	require.Equal(t, tombstone, again)
}
