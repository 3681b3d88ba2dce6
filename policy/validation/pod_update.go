package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodUpdate reports what is wrong with the scheduling directives of pod as an
// update of old. Changes to other fields are not looked at.
//
// Changes that Kubernetes allows to no pod are reported once, at spec, with the
// names of the fields in the text: the path is the API server's.
func ValidatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSyntax(&pod.Spec, storedLabelValues(&old.Spec), path)
	errs = append(errs, validateGatesRemoved(pod.Spec.SchedulingGates, old.Spec.SchedulingGates, path.Child("schedulingGates"))...)

	gated := len(old.Spec.SchedulingGates) > 0
	if gated {
		errs = append(errs, validateSelectorTightened(pod.Spec.NodeSelector, old.Spec.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateAffinityTightened(pod.Spec.Affinity, old.Spec.Affinity, path.Child("affinity", "nodeAffinity"))...)
	}
	if fields := fixedFieldsChanged(&pod.Spec, &old.Spec, gated); len(fields) > 0 {
		errs = append(errs, field.Forbidden(path, fixedFieldsDetail(fields, gated)))
	}
	return errs
}

// validateGatesRemoved holds gates to those of old. The order may change.
//
// A new name that stands twice is reported once, where it stands last.
func validateGatesRemoved(gates, old []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	known := make(sets.Set[string], len(old)+len(gates))
	for _, gate := range old {
		known.Insert(gate.Name)
	}
	var errs field.ErrorList
	for i, gate := range slices.Backward(gates) {
		if known.Has(gate.Name) {
			continue
		}
		known.Insert(gate.Name)
		errs = append(errs, field.Forbidden(path.Index(i).Child("name"),
			fmt.Sprintf("gate %q was not there before: the gates of an existing pod can only be taken away", gate.Name)))
	}
	return errs
}

// validateSelectorTightened holds selector to what old asks for, and more.
func validateSelectorTightened(selector, old map[string]string, path *field.Path) field.ErrorList {
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if value, ok := selector[key]; !ok || value != old[key] {
			return field.ErrorList{field.Invalid(path, selector,
				fmt.Sprintf("%s=%s must stay: behind a scheduling gate keys may be added, none changed or taken away", key, old[key]))}
		}
	}
	return nil
}

// fixedFieldsChanged names the directives that differ though nothing lets them.
func fixedFieldsChanged(spec, old *corev1.PodSpec, gated bool) []string {
	var fields []string
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("nodeSelector", gated || maps.Equal(spec.NodeSelector, old.NodeSelector))
	add("affinity", affinityFixed(spec.Affinity, old.Affinity, gated))
	add("topologySpreadConstraints", equality.Semantic.DeepEqual(spec.TopologySpreadConstraints, old.TopologySpreadConstraints))
	add("schedulerName", spec.SchedulerName == old.SchedulerName)
	add("priority", equality.Semantic.DeepEqual(spec.Priority, old.Priority))
	add("schedulingGroup", equality.Semantic.DeepEqual(spec.SchedulingGroup, old.SchedulingGroup))
	return fields
}

func fixedFieldsDetail(fields []string, gated bool) string {
	detail := strings.Join(fields, ", ") + " may not change once the pod is created"
	if !gated && (slices.Contains(fields, "nodeSelector") || slices.Contains(fields, "affinity")) {
		return detail + ": node selector and node affinity only while a scheduling gate holds it"
	}
	return detail
}
