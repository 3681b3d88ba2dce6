package act

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// mark is the content of the DisruptionTarget condition.
type mark struct{ reason, message string }

// The conditions that Kubernetes' own controllers set (NE-20, DE-39).
var (
	nodeMark   = mark{"DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"}
	deviceMark = mark{"DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"}
)

// markText returns the mark for taints of objects of a kind.
func markText(cause tracker.SourceKind) mark {
	if cause.OnDevice() {
		return deviceMark
	}
	return nodeMark
}

// mark sets the DisruptionTarget condition.
func (r *Requests) mark(ctx context.Context, pod tracker.Pod, cause tracker.SourceKind) (*corev1.Pod, error) {
	body, _ := json.Marshal(markPatch(pod, cause, metav1.NewTime(r.clock.Now()))) // Strings and numbers can be encoded.
	return r.pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// markPatch returns the strategic merge patch that marks a pod. Its UID and resourceVersion are
// preconditions. A condition that is already true keeps its lastTransitionTime. observedGeneration
// is set for devices too, unlike by Kubernetes' own controller for devices (DE-40).
func markPatch(pod tracker.Pod, cause tracker.SourceKind, now metav1.Time) *corev1apply.PodApplyConfiguration {
	text := markText(cause)
	condition := corev1apply.PodCondition().WithType(corev1.DisruptionTarget).WithStatus(corev1.ConditionTrue).
		WithReason(text.reason).WithMessage(text.message).WithObservedGeneration(pod.Generation)
	if pod.Disruption == nil || pod.Disruption.Status != corev1.ConditionTrue {
		condition.WithLastTransitionTime(now)
	}
	var patch corev1apply.PodApplyConfiguration
	if pod.ResourceVersion != "" {
		patch.WithResourceVersion(pod.ResourceVersion)
	}
	return patch.WithUID(pod.UID).WithStatus(corev1apply.PodStatus().WithConditions(condition))
}

// marked reports whether a pod has the condition that markPatch would set.
func marked(pod tracker.Pod, cause tracker.SourceKind) bool {
	c, text := pod.Disruption, markText(cause)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == text.reason &&
		c.Message == text.message && c.ObservedGeneration == pod.Generation
}
