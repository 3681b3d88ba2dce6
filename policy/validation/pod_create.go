package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodCreate reports what is wrong with the scheduling gates, the node selector
// and the node affinity of a pod that is about to be created.
func ValidatePodCreate(pod *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSyntax(&pod.Spec, strictLabelValues, path)
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(path.Child("nodeName"),
			"a pod that is held by scheduling gates has no node yet: leave out one or the other"))
	}
	return errs
}
