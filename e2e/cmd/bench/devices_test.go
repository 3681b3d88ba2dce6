package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func newDeviceStage() *stage {
	return &stage{client: fake.NewClientset(), nodes: []string{"node-1", "node-2"}, canary: "node-3"}
}

func TestEachPodHasADeviceThatIsPublished(t *testing.T) {
	s := newDeviceStage()
	const pods = 20
	require.NoError(t, deviceWorkload{stage: s}.create(t.Context(), pods))

	type id struct{ driver, pool, name string }
	published := map[id]bool{}
	slices, err := s.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	inPool := map[id]int64{}
	for i := range slices.Items {
		spec := &slices.Items[i].Spec
		require.Equal(t, spec.Pool.Name, *spec.NodeName)
		inPool[id{driver: spec.Driver, pool: spec.Pool.Name}]++
		for _, device := range spec.Devices {
			published[id{spec.Driver, spec.Pool.Name, device.Name}] = true
		}
	}
	for i := range slices.Items {
		spec := &slices.Items[i].Spec
		require.Equal(t, inPool[id{driver: spec.Driver, pool: spec.Pool.Name}], spec.Pool.ResourceSliceCount)
	}

	tainted, tolerating := 0, 0
	used := map[id]bool{}
	all, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, pods+stayPerNode*len(s.nodes)+1)
	for i := range all.Items {
		pod := &all.Items[i]
		require.Len(t, pod.Spec.ResourceClaims, 1)
		claim, err := s.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), *pod.Spec.ResourceClaims[0].ResourceClaimName, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, pod.Name, claim.Status.ReservedFor[0].Name)
		result := claim.Status.Allocation.Devices.Results[0]
		device := id{result.Driver, result.Pool, result.Device}
		require.True(t, published[device], "%v", device)
		require.False(t, used[device], "%v", device)
		used[device] = true
		require.Equal(t, result.Tolerations, claim.Spec.Devices.Requests[0].Exactly.Tolerations)
		if result.Driver == taintedDriver {
			tainted++
			tolerating += len(result.Tolerations)
		} else {
			require.NotEqual(t, leaves, groupOf(pod.Name))
		}
	}
	require.Equal(t, pods+len(s.nodes), tainted)
	require.Equal(t, len(s.nodes), tolerating, "of those that stay, one on each node")
}

func TestAPoolThatIsTooLargeForOneSliceHasSeveral(t *testing.T) {
	names := make([]string, 2*resourcev1.ResourceSliceMaxDevices+1)
	for i := range names {
		names[i] = deviceName(leaves, i)
	}
	pool := newPool(taintedDriver, "node-1", names)
	require.Len(t, pool, 3)
	var published []string
	for _, slice := range pool {
		require.EqualValues(t, 3, slice.Spec.Pool.ResourceSliceCount)
		require.LessOrEqual(t, len(slice.Spec.Devices), resourcev1.ResourceSliceMaxDevices)
		for _, device := range slice.Spec.Devices {
			published = append(published, device.Name)
		}
	}
	require.Equal(t, names, published)
}

func TestTimedPodsTolerateTheTaintForAWhile(t *testing.T) {
	due := map[int64]int{}
	for place := range 2 * duePerSecond {
		due[tolerates(place)]++
	}
	require.Equal(t, map[int64]int{firstDue: duePerSecond, firstDue + 1: duePerSecond}, due)

	s := newDeviceStage()
	require.NoError(t, s.workload(scenario{devices: true, timed: true}).create(t.Context(), 4))
	claims, err := s.client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range claims.Items {
		if groupOf(claims.Items[i].Name) == leaves {
			tolerations := claims.Items[i].Status.Allocation.Devices.Results[0].Tolerations
			require.Equal(t, int64(firstDue), *tolerations[0].TolerationSeconds)
		}
	}
}

func TestDevicesAreClearedAway(t *testing.T) {
	s := newDeviceStage()
	// The fake knows no deletion of many at once.
	fakes := s.client.(*fake.Clientset)
	fakes.PrependReactor("delete-collection", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource()
		kind := resource.GroupVersion().WithKind(map[string]string{"pods": "Pod", "resourceslices": "ResourceSlice"}[resource.Resource])
		list, err := fakes.Tracker().List(resource, kind, action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, nil, meta.EachListItem(list, func(object runtime.Object) error {
			return fakes.Tracker().Delete(resource, action.GetNamespace(), object.(metav1.Object).GetName())
		})
	})
	w := deviceWorkload{stage: s}
	require.NoError(t, w.create(t.Context(), 4))
	require.NoError(t, w.taintAll(t.Context()))
	require.NoError(t, w.clear(t.Context()), "a rule that there is not is no error")
	rules, err := s.client.ResourceV1().DeviceTaintRules().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, rules.Items)
	claims, err := s.client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, claims.Items)
	slices, err := s.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, slices.Items)
}
