package act

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
func (r *requests) mark(ctx context.Context, pod tracker.Pod, cause tracker.SourceKind) (*corev1.Pod, error) {
	body, err := json.Marshal(markPatch(pod, cause, metav1.NewTime(r.clock.Now())))
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return r.pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// statusPatch is a strategic merge patch of a pod's status. The resource version
// makes the API server refuse it for any other version, the UID for any other pod.
type statusPatch struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []conditionPatch `json:"conditions"`
	} `json:"status"`
}

type conditionPatch struct {
	Type               corev1.PodConditionType `json:"type"`
	Status             corev1.ConditionStatus  `json:"status"`
	Reason             string                  `json:"reason"`
	Message            string                  `json:"message"`
	ObservedGeneration int64                   `json:"observedGeneration,omitempty"`
	LastTransitionTime *metav1.Time            `json:"lastTransitionTime,omitempty"`
}

// markPatch returns the patch that marks pod. A condition that is true already
// keeps the time since when it is. The generation is given for devices as for
// nodes, which Kubernetes' own controller for devices does not do (DE-40).
func markPatch(pod tracker.Pod, cause tracker.SourceKind, now metav1.Time) statusPatch {
	text := markText(cause)
	condition := conditionPatch{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             text.reason,
		Message:            text.message,
		ObservedGeneration: pod.Generation,
	}
	if pod.Disruption == nil || pod.Disruption.Status != corev1.ConditionTrue {
		condition.LastTransitionTime = &now
	}
	var patch statusPatch
	patch.Metadata.UID, patch.Metadata.ResourceVersion = pod.UID, pod.ResourceVersion
	patch.Status.Conditions = []conditionPatch{condition}
	return patch
}

// marked reports whether pod has the condition as markPatch would set it.
func marked(pod tracker.Pod, cause tracker.SourceKind) bool {
	c, text := pod.Disruption, markText(cause)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == text.reason &&
		c.Message == text.message && c.ObservedGeneration == pod.Generation
}
