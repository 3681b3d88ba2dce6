package informer_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// typical returns a pod as a Deployment makes them.
func typical(i int) *corev1.Pod {
	now := metav1.NewTime(start.Add(time.Duration(i) * time.Second))
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

func TestTrimPod(t *testing.T) {
	t.Parallel()

	t.Run("a trimmed pod leads to the same decisions", func(t *testing.T) {
		t.Parallel()
		for _, change := range []func(*corev1.Pod){
			func(*corev1.Pod) {},
			func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" },
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(start)) },
			func(p *corev1.Pod) { p.Status.Conditions = nil },
			func(p *corev1.Pod) { p.Status.Conditions, p.Status.StartTime = nil, nil },
			func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "r", Message: "m"})
			},
		} {
			p := typical(1)
			change(p)
			trimmed, err := informer.TrimPod(p)
			require.NoError(t, err)
			require.Equal(t, tracker.PodOf(p), tracker.PodOf(trimmed.(*corev1.Pod)))
		}
	})

	t.Run("nothing else is kept", func(t *testing.T) {
		t.Parallel()
		p := typical(1)
		obj, err := informer.TrimPod(p)
		require.NoError(t, err)
		trimmed := obj.(*corev1.Pod)
		require.Empty(t, trimmed.OwnerReferences)
		require.Empty(t, trimmed.Spec.PriorityClassName)
		require.Empty(t, trimmed.Spec.Containers)
		require.Empty(t, trimmed.Labels)
		require.Empty(t, trimmed.Annotations)
		require.Empty(t, trimmed.ManagedFields)
		require.Len(t, trimmed.Status.Conditions, 1)
		again, err := informer.TrimPod(trimmed)
		require.NoError(t, err)
		require.Equal(t, trimmed, again)
	})

	t.Run("what is not a pod or not a node is let be", func(t *testing.T) {
		t.Parallel()
		tombstone := toolscache.DeletedFinalStateUnknown{Key: "ns/p"}
		got, err := informer.TrimPod(tombstone)
		require.NoError(t, err)
		require.Equal(t, tombstone, got)
		got, err = informer.TrimNode(tombstone)
		require.NoError(t, err)
		require.Equal(t, tombstone, got)
	})

	t.Run("a trimmed node keeps its taints and loses its status", func(t *testing.T) {
		t.Parallel()
		n := node("7", "gpu")
		n.Labels = map[string]string{"a": "b"}
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
		obj, err := informer.TrimNode(n)
		require.NoError(t, err)
		trimmed := obj.(*corev1.Node)
		require.Equal(t, tracker.NodeOf(n), tracker.NodeOf(trimmed))
		require.Empty(t, trimmed.Status)
		require.Empty(t, trimmed.Labels)
	})
}

// TestMemoryOfATrimmedPod holds the line that a cluster of many pods pays for.
// The Go struct of a pod alone is 1,280 bytes of heap.
func TestMemoryOfATrimmedPod(t *testing.T) {
	const count = 2000
	measure := func(transform func(any) (any, error)) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept := make([]any, 0, count)
		for i := range count {
			obj, err := transform(typical(i))
			require.NoError(t, err)
			kept = append(kept, obj)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return (after.HeapAlloc - before.HeapAlloc) / count
	}
	whole := measure(func(obj any) (any, error) { return obj, nil })
	trimmed := measure(informer.TrimPod)
	t.Logf("bytes a pod: %d whole, %d trimmed", whole, trimmed)
	require.Less(t, trimmed, uint64(2200))
	require.Less(t, trimmed, whole/5)
}
