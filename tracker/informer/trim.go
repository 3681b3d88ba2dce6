package informer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrimPod is a transform for a pod informer: it keeps of a pod what Tollgate uses
// and leaves what is not a pod alone. The result shares memory with nothing but
// the strings that are kept.
func TrimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: trimMeta(&pod.ObjectMeta),
		Spec: corev1.PodSpec{
			NodeName:    pod.Spec.NodeName,
			Tolerations: pod.Spec.Tolerations,
		},
		Status: corev1.PodStatus{
			Phase:     pod.Status.Phase,
			StartTime: pod.Status.StartTime,
		},
	}
	if mirror, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		trimmed.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	}
	trimmed.Status.Conditions = trimConditions(pod.Status.Conditions)
	return trimmed, nil
}

// TrimNode is a transform for a node informer, as TrimPod is for pods.
func TrimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: trimMeta(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints},
	}, nil
}

func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		Generation:        meta.Generation,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// trimConditions returns the conditions that are used, in a slice of their own:
// a part of the old one would hold on to all of it.
func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget {
			kept = append(kept, c)
		}
	}
	return kept
}
