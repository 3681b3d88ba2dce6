package evictor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// evict makes one attempt, for a taint that objects of that kind carry.
	evict(ctx context.Context, pod tracker.Pod, cause tracker.SourceKind, mark bool) (attempt, error)
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
func (d *deleter) evict(ctx context.Context, pod tracker.Pod, cause tracker.SourceKind, mark bool) (attempt, error) {
	var done attempt
	version := pod.ResourceVersion
	if mark && !marked(pod, cause) {
		answer, err := d.mark(ctx, pod, cause)
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
