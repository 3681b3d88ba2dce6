package dra

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claim returns a claim of one device of a driver: the one of that name, or any if
// the name is empty.
func Claim(name, driver, device string, tolerations ...resourcev1.DeviceToleration) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       spec(driver, device, tolerations),
	}
}

// Template returns a template for claims as Claim returns them.
func Template(name, driver, device string, tolerations ...resourcev1.DeviceToleration) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: spec(driver, device, tolerations)},
	}
}

func spec(driver, device string, tolerations []resourcev1.DeviceToleration) resourcev1.ResourceClaimSpec {
	exactly := &resourcev1.ExactDeviceRequest{
		DeviceClassName: driver,
		AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
		Count:           1,
		Tolerations:     tolerations,
	}
	if device != "" {
		exactly.Selectors = []resourcev1.DeviceSelector{named(driver, device)}
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: exactly}},
	}}
}

// FirstAvailable makes a claim ask for a device of a driver that has none, and
// only then for what it asked for.
func FirstAvailable(claim *resourcev1.ResourceClaim, missing string) *resourcev1.ResourceClaim {
	exactly := claim.Spec.Devices.Requests[0].Exactly
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "device",
		FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "missing", DeviceClassName: missing, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			{
				Name: "present", DeviceClassName: exactly.DeviceClassName, Selectors: exactly.Selectors,
				AllocationMode: exactly.AllocationMode, Count: exactly.Count, Tolerations: exactly.Tolerations,
			},
		},
	}}
	return claim
}

func named(driver, device string) resourcev1.DeviceSelector {
	return selector("device.attributes[%q].%s == %q", driver, nameAttribute, device)
}

// Tolerate returns a toleration of NoExecute taints of a key with any value.
func Tolerate(key string) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
	}
}

// TolerateFor returns a toleration as Tolerate does, for some seconds.
func TolerateFor(key string, seconds int64) resourcev1.DeviceToleration {
	toleration := Tolerate(key)
	toleration.TolerationSeconds = &seconds
	return toleration
}

// Pod returns a pod that uses claims by their names.
func Pod(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return pod
}

// FromTemplate makes a pod use a claim of its own, made from a template.
func FromTemplate(pod *corev1.Pod, template string) *corev1.Pod {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: template, ResourceClaimTemplateName: &template})
	pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: template})
	return pod
}
