package evictor

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Outcome is how an eviction ended.
type Outcome uint8

// The outcomes.
const (
	// Unfinished is the outcome of an attempt that has to be repeated.
	Unfinished Outcome = iota
	// Evicted says that the API server accepted our deletion.
	Evicted
	// Gone says that there is no such pod any more.
	Gone
	// Terminating says that somebody else deleted the pod.
	Terminating
)

// String returns the outcome as it is written in logs and metric labels.
func (o Outcome) String() string {
	switch o {
	case Evicted:
		return "evicted"
	case Gone:
		return "gone"
	case Terminating:
		return "terminating"
	case Unfinished:
	}
	return "unfinished"
}

// The DisruptionTarget condition (NE-20).
const (
	conditionReason  = "DeletionByTaintManager"
	conditionMessage = "Taint manager: deleting due to NoExecute taint"
)

// methodDelete is the metric label of evictions by deletion.
const methodDelete = "delete"

// attempt is what came of one try to evict a pod.
type attempt struct {
	outcome Outcome
	// answer is the pod as the API server last returned it, nil when it did not.
	answer *corev1.Pod
	// marking is true when the condition was what failed.
	marking bool
	// sent is true when the deletion was asked for, whatever came of it.
	sent bool
}

// effector carries out an eviction. It makes every request on condition that the
// pod still is the one, in the version, that the decision was made on.
type effector interface {
	evict(ctx context.Context, pod tracker.Pod, mark bool) (attempt, error)
}

// deleter evicts as Kubernetes does: it sets the DisruptionTarget condition and
// deletes the pod. In the normal case that is two requests, neither of them a
// read.
type deleter struct {
	pods  corev1client.PodsGetter
	clock clock.PassiveClock
}

// evict makes one attempt. With mark false the condition is left out: it explains
// an eviction and must not prevent it.
func (d *deleter) evict(ctx context.Context, pod tracker.Pod, mark bool) (attempt, error) {
	var done attempt
	version := pod.ResourceVersion
	if mark && !marked(pod) {
		answer, err := d.mark(ctx, pod)
		switch classify(err) {
		case NoFailure:
		case NotFound:
			done.outcome = Gone
			return done, nil
		case Conflict, Throttled, Denied, Invalid, Timeout, Unavailable:
			done.marking = true
			return done, fmt.Errorf("mark pod: %w", err)
		}
		done.answer = answer
		if answer.DeletionTimestamp != nil {
			done.outcome = Terminating
			return done, nil
		}
		version = answer.ResourceVersion
	}
	done.sent = true
	err := d.pods.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version},
	})
	switch classify(err) {
	case NoFailure:
		done.outcome = Evicted
	case NotFound:
		done.outcome = Gone
	case Conflict, Throttled, Denied, Invalid, Timeout, Unavailable:
		return done, fmt.Errorf("delete pod: %w", err)
	}
	return done, nil
}

// mark sets the DisruptionTarget condition.
func (d *deleter) mark(ctx context.Context, pod tracker.Pod) (*corev1.Pod, error) {
	body, err := json.Marshal(markPatch(pod, metav1.NewTime(d.clock.Now())))
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return d.pods.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// statusPatch is a strategic merge patch of a pod's status. The resource version
// makes the API server refuse it for any other version; the UID is for readers of
// audit logs.
type statusPatch struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
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
// keeps the time since when it is.
func markPatch(pod tracker.Pod, now metav1.Time) statusPatch {
	condition := conditionPatch{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             conditionReason,
		Message:            conditionMessage,
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
func marked(pod tracker.Pod) bool {
	c := pod.Disruption
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == conditionReason &&
		c.Message == conditionMessage && c.ObservedGeneration == pod.Generation
}
