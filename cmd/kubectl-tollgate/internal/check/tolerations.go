package check

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// tolerateNodes does what DefaultTolerationSeconds does (TP-15).
func (s *APIServer) tolerateNodes(pod *corev1.Pod) {
	for _, to := range []struct {
		key     string
		seconds int64
	}{{corev1.TaintNodeNotReady, s.NotReadySeconds}, {corev1.TaintNodeUnreachable, s.UnreachableSeconds}} {
		has := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == to.key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !has {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: to.key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(to.seconds),
			})
		}
	}
}

// TolerateAsDaemon adds what the DaemonSet controller adds to its pods, to let them run on
// nodes that are not fit for others.
func TolerateAsDaemon(spec *corev1.PodSpec) {
	add := func(key string, effect corev1.TaintEffect) {
		added := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		for i := range spec.Tolerations {
			if t := &spec.Tolerations[i]; t.MatchToleration(&added) {
				*t = added
				return
			}
		}
		spec.Tolerations = append(spec.Tolerations, added)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	for _, key := range []string{
		corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable,
	} {
		add(key, corev1.TaintEffectNoSchedule)
	}
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

// tolerateResources does what ExtendedResourceToleration does (TP-16).
func tolerateResources(pod *corev1.Pod) {
	names := map[string]struct{}{}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if isExtended(string(name)) {
					names[string(name)] = struct{}{}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		added := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, added) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, added)
		}
	}
}

// isExtended reports whether a resource is one that neither Kubernetes nor its quota
// defines.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}

// bestEffort reports whether a pod asks for no CPU and no memory.
func bestEffort(pod *corev1.Pod) bool {
	asks := func(list corev1.ResourceList) bool {
		return !list.Cpu().IsZero() || !list.Memory().IsZero()
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if asks(list[i].Resources.Requests) || asks(list[i].Resources.Limits) {
				return false
			}
		}
	}
	return pod.Spec.Resources == nil || !asks(pod.Spec.Resources.Requests) && !asks(pod.Spec.Resources.Limits)
}

// merge returns tolerations and more of them, less those that another says too (TP-04).
func merge(tolerations, more []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(tolerations, more)
	var merged []corev1.Toleration
	for i := range all {
		t := &all[i]
		said := slices.ContainsFunc(merged, func(kept corev1.Toleration) bool { return superset(&kept, t) }) ||
			slices.ContainsFunc(all[i+1:], func(later corev1.Toleration) bool {
				return !equality.Semantic.DeepEqual(later, *t) && superset(&later, t)
			})
		if !said {
			merged = append(merged, *t)
		}
	}
	return merged
}

// superset reports whether s tolerates all that t does, as the plugins see it (TP-05).
func superset(s, t *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(*s, *t) {
		return true
	}
	everyKey := s.Key == "" && s.Operator == corev1.TolerationOpExists
	if s.Key != t.Key && !everyKey || s.Effect != "" && s.Effect != t.Effect {
		return false
	}
	if s.Effect == corev1.TaintEffectNoExecute && s.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *s.TolerationSeconds) {
		return false
	}
	switch s.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && s.Value == t.Value
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		return false
	default:
		return false
	}
}
