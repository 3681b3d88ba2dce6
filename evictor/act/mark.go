package act

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// mark is what the DisruptionTarget condition of a pod says.
type mark struct{ reason, message string }

// The marks that Kubernetes' own controllers leave (NE-20, DE-39).
var (
	nodeMark   = mark{"DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"}
	deviceMark = mark{"DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"}
)

// markText returns the mark for a taint that objects of that kind carry.
func markText(cause tracker.SourceKind) mark {
	if cause.OnDevice() {
		return deviceMark
	}
	return nodeMark
}

// mark sets the DisruptionTarget condition.
func (r *Requests) mark(ctx context.Context, pod tracker.Pod, cause tracker.SourceKind) (*corev1.Pod, error) {
	body, err := json.Marshal(markPatch(pod, cause, metav1.NewTime(r.clock.Now())))
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return r.pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// markPatch returns the strategic merge patch that marks pod. The resource version
// makes the API server refuse it for any other version, the UID for any other pod. A
// condition that is true already keeps the time since when it is. The generation is given
// for devices as for nodes, which Kubernetes' own controller for devices does not do (DE-40).
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

// marked reports whether pod has the condition as markPatch would set it.
func marked(pod tracker.Pod, cause tracker.SourceKind) bool {
	c, text := pod.Disruption, markText(cause)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == text.reason &&
		c.Message == text.message && c.ObservedGeneration == pod.Generation
}
