package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/policy"
)

// outside reports whether the namespaceSelector of the webhooks leaves out what is in a
// namespace, or a namespace itself. Nodes are of none.
func (c *Checker) outside(namespace string) bool {
	return policy.Unjudged(namespace, c.config.Namespace)
}

// asked reports whether the API server asks about the creation of an object, by the
// matchConditions in deploy/webhooks/validating.yaml. Workloads without tolerations it does
// not ask about; these are judged all the same, with the same outcome.
func asked(object runtime.Object) bool {
	switch o := object.(type) {
	case *resourcev1.ResourceClaim:
		return tolerates(&o.Spec)
	case *resourcev1.ResourceClaimTemplate:
		return tolerates(&o.Spec.Spec)
	case *resourcev1.ResourceSlice:
		return slices.ContainsFunc(o.Spec.Devices, func(d resourcev1.Device) bool { return d.Taints != nil })
	default:
		return true
	}
}

// tolerates reports whether any request of a claim says what it tolerates.
func tolerates(spec *resourcev1.ResourceClaimSpec) bool {
	return slices.ContainsFunc(spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.Tolerations != nil ||
			slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.Tolerations != nil })
	})
}

// mutates reports whether the API server asks what an object is to be given, by the
// matchConditions in deploy/webhooks/mutating.yaml.
func mutates(object runtime.Object, by Subject) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return true
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror || !by.isNode()
}
