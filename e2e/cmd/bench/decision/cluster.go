package decision

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = "default"
	driver    = "gpu.example.com"
	request   = "gpu"
	// devicesPerSlice is that of the integration test of Kubernetes that evicts
	// all pods of a cluster.
	devicesPerSlice = 50
)

// OnePool is for NewCluster and puts all devices into one pool.
const OnePool = 0

// Cluster is what the API server would hold: pods with a claim and a device each,
// and a rule that taints all of these.
type Cluster struct {
	slices []*resourcev1.ResourceSlice
	claims []*resourcev1.ResourceClaim
	pods   []*corev1.Pod
	rule   *resourcev1.DeviceTaintRule
}

// NewCluster returns a cluster of n pods, with so many devices in each pool.
func NewCluster(n, devicesPerPool int, now time.Time) *Cluster {
	if devicesPerPool == OnePool {
		devicesPerPool = n
	}
	c := &Cluster{
		rule: &resourcev1.DeviceTaintRule{
			ObjectMeta: meta("rule", 0, now),
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(driver)},
				Taint: resourcev1.DeviceTaint{
					Key: "example.com/replace", Effect: resourcev1.DeviceTaintEffectNoExecute,
					TimeAdded: new(metav1.NewTime(now)),
				},
			},
		},
	}
	for i := range n {
		pool, device := "pool-"+strconv.Itoa(i/devicesPerPool), i%devicesPerPool
		if device%devicesPerSlice == 0 {
			c.slices = append(c.slices, newSlice(pool, len(c.slices), min(devicesPerPool, n), now))
		}
		slice := c.slices[len(c.slices)-1]
		name := "device-" + strconv.Itoa(device)
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: name})
		pod := newPod(i, now)
		c.pods = append(c.pods, pod)
		c.claims = append(c.claims, newClaim(pod, i, pool, name, now))
	}
	return c
}

func meta(kind string, i int, now time.Time) metav1.ObjectMeta {
	name := fmt.Sprintf("%s-%06d", kind, i)
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.NewTime(now),
	}
}

func newSlice(pool string, i, devicesInPool int, now time.Time) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: meta("slice", i, now),
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, AllNodes: new(true),
			Pool: resourcev1.ResourcePool{
				Name: pool, Generation: 1, ResourceSliceCount: int64((devicesInPool + devicesPerSlice - 1) / devicesPerSlice),
			},
		},
	}
}

func newPod(i int, now time.Time) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta("pod", i, now)}
	pod.Namespace = namespace
	pod.Spec.NodeName = "node"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: request, ResourceClaimName: new(meta("claim", i, now).Name)}}
	pod.Status.Phase = corev1.PodRunning
	return pod
}

func newClaim(pod *corev1.Pod, i int, pool, device string, now time.Time) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: meta("claim", i, now)}
	claim.Namespace = namespace
	claim.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: request, Driver: driver, Pool: pool, Device: device}},
		}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
	return claim
}
