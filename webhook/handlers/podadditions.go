package handlers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

// added returns the tolerations that an administrator's settings add to a pod by way of admission
// plugins of the API server, which run before webhooks. They are no choice of the user who creates
// the pod. Those forResources are added for the resources that the pod requests. A scheduler puts
// such a pod only on a node that has them; past the scheduler nothing does, because kubelets let
// in pods that request resources which their nodes do not have.
func (r request) added(ctx context.Context, pod *podFields) (bySettings, forResources []corev1.Toleration, err error) {
	if r.policies.Tolerations.Len() == 0 || len(pod.Spec.Tolerations) == 0 {
		return nil, nil, nil
	}
	if class := pod.Spec.RuntimeClassName; class != nil {
		ofClass, err := r.RuntimeClasses.Tolerations(ctx, *class)
		if err != nil {
			return nil, nil, err
		}
		bySettings = slices.Clone(ofClass)
	}
	if r.PodTolerationRestriction {
		// TP-03; of pods of every quality of service, because the plugin adds it to
		// most and it is a small thing to have.
		bySettings = append(bySettings, noScheduleOf(corev1.TaintNodeMemoryPressure))
	}
	if r.ExtendedResourceToleration {
		forResources = extendedResourceTolerations(&r.Fields, pod)
	}
	return bySettings, forResources, nil
}

// noScheduleOf returns the toleration of the NoSchedule taints with a key.
func noScheduleOf(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

// extendedResourceTolerations returns the tolerations that the plugin
// ExtendedResourceToleration adds: a toleration of the taint named like each extended resource that a
// container requests (TP-16). It adds that for a request of zero too. Such a pod fits
// on any node, so to request nothing would be a way to tolerate anything: it is left
// out here, and judged like a toleration that a user writes.
func extendedResourceTolerations(f *review.Fields, pod *podFields) []corev1.Toleration {
	requested := sets.Set[string]{}
	pod.requests(f, false, func(name string, amount *quantity.Quantity) {
		if amount.Sign() > 0 && isExtendedResource(name) {
			requested.Insert(name)
		}
	})
	tolerations := make([]corev1.Toleration, 0, len(requested))
	for _, name := range sets.List(requested) {
		tolerations = append(tolerations, noScheduleOf(name))
	}
	return tolerations
}

// isExtendedResource reports whether a resource is one that neither Kubernetes
// nor its quota defines.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
