package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noon is the time at which tests decide.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The driver and the pool of all devices that are not said to be elsewhere.
const (
	driverX = "gpu.example.com"
	poolX   = "pool"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// tolerationFor returns a toleration of a key for some seconds.
func tolerationFor(key string, n int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &n}
}

// forever returns a toleration of a key without end.
func forever(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
}

// newPod returns a pod bound to a node now.
func newPod(name, node string, tolerations ...corev1.Toleration) *corev1.Pod {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Generation: 1, CreationTimestamp: now},
		Spec:       corev1.PodSpec{NodeName: node, Tolerations: tolerations},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if node != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	}
	return p
}

// newClaim returns a claim that is allocated a device and reserved for pods.
func newClaim(name, device string, tolerations []resourcev1.DeviceToleration, pods ...string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-claim-uid")},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r", Driver: driverX, Pool: poolX, Device: device, Tolerations: tolerations,
			}}},
		}},
	}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: types.UID(pod + "-uid"),
		})
	}
	return claim
}

// using returns pod with a claim that it names.
func using(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	return pod
}

// tolerated returns a toleration of a key for some seconds, for ever when negative.
func tolerated(key string, seconds int64) []resourcev1.DeviceToleration {
	toleration := resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
	}
	if seconds >= 0 {
		toleration.TolerationSeconds = &seconds
	}
	return []resourcev1.DeviceToleration{toleration}
}

// several joins tolerations.
func several(lists ...[]resourcev1.DeviceToleration) []resourcev1.DeviceToleration {
	var all []resourcev1.DeviceToleration
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}
