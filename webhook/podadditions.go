package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

// podAdditions finds the tolerations that an administrator's settings add to pods by way of
// admission plugins of the API server, which run before webhooks. They are no choice
// of the user who creates the pod.
type podAdditions struct {
	runtimeClasses runtimeClasses
	// extendedResources says whether the API server adds tolerations for extended
	// resources.
	extendedResources bool
	// podTolerationRestriction says whether the API server adds a toleration for
	// memory pressure.
	podTolerationRestriction bool
}

// addedTolerations are the tolerations that are added to a pod.
type addedTolerations struct {
	bySettings []corev1.Toleration
	// forResources is added for the resources that the pod requests. A scheduler puts such a
	// pod only on a node that has them; past the scheduler nothing does, because kubelets let
	// in pods that request resources which their nodes do not have.
	forResources []corev1.Toleration
}

// of returns the tolerations that are added to pod. Raw is its JSON.
func (a *podAdditions) of(ctx context.Context, pod *corev1.Pod, raw []byte) (addedTolerations, error) {
	if len(pod.Spec.Tolerations) == 0 {
		return addedTolerations{}, nil
	}
	var to addedTolerations
	if class := pod.Spec.RuntimeClassName; class != nil {
		ofClass, err := a.runtimeClasses.Tolerations(ctx, *class)
		if err != nil {
			return addedTolerations{}, err
		}
		to.bySettings = append(to.bySettings, ofClass...)
	}
	if a.podTolerationRestriction {
		// TP-03; of pods of every quality of service, because the plugin adds it to
		// most and it is a small thing to have.
		to.bySettings = append(to.bySettings, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if !a.extendedResources {
		return to, nil
	}
	var err error
	to.forResources, err = extendedResourceTolerations(raw)
	return to, err
}

// containerFields are the fields of a pod that say which resources it requests.
type containerFields struct {
	Spec struct {
		Containers     json.RawMessage `json:"containers"`
		InitContainers json.RawMessage `json:"initContainers"`
	} `json:"spec"`
}

type resourcesOfContainer struct {
	Resources struct {
		Requests map[string]json.RawMessage `json:"requests"`
	} `json:"resources"`
}

// extendedResourceTolerations returns the tolerations that the plugin
// ExtendedResourceToleration adds: a toleration of the taint named like each extended resource that a
// container requests (TP-16). It adds that for a request of zero too. Such a pod fits
// on any node, so to request nothing would be a way to tolerate anything: it is left
// out here, and judged like a toleration that a user writes.
func extendedResourceTolerations(raw []byte) ([]corev1.Toleration, error) {
	var fields containerFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	var containers, initContainers []resourcesOfContainer
	err := errors.Join(
		decodeField(fields.Spec.Containers, "spec.containers", &containers),
		decodeField(fields.Spec.InitContainers, "spec.initContainers", &initContainers),
	)
	if err != nil {
		return nil, &badReviewError{err}
	}
	requested := map[string]bool{}
	for _, container := range append(containers, initContainers...) {
		for name, quantity := range container.Resources.Requests {
			if requested[name] || !isExtendedResource(name) {
				continue
			}
			var amount apiresource.Quantity
			if err := amount.UnmarshalJSON(quantity); err != nil {
				return nil, &badReviewError{fmt.Errorf("decode the request of %s: %w", clip(name), err)}
			}
			if amount.Sign() > 0 {
				requested[name] = true
			}
		}
	}
	tolerations := make([]corev1.Toleration, 0, len(requested))
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		tolerations = append(tolerations, corev1.Toleration{
			Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return tolerations, nil
}

// isExtendedResource reports whether a resource is one that neither Kubernetes
// nor its quota defines.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
