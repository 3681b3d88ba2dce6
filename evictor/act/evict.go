package act

import (
	"context"
	"errors"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/tracker"
)

// errChanged is the error for a pod that has another version than the one that was decided about.
var errChanged = errors.New("pod changed since it was decided about")

// evict calls the Eviction API (policy/v1), which honours PodDisruptionBudgets and sets the
// DisruptionTarget condition itself. The API server records a disruption in the budget before it
// checks the preconditions, and if they fail, the disruption expires only after two minutes
// (pkg/registry/core/pod/storage/eviction.go). So a pod with a budget is read first: an outdated
// version must not use up the budget of other pods.
func (r *Requests) evict(ctx context.Context, what *Order) (Attempt, error) {
	pod := &what.Pod
	if what.Guarded {
		if done, err := r.read(ctx, pod); err != nil || done.Outcome != Unfinished {
			return done, err
		}
	}
	return what.send(ctx, Attempt{}, "evict pod", func(ctx context.Context) error {
		return r.pods.Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: preconditions(pod, pod.ResourceVersion)},
		})
	})
}

// read reads the pod, and returns a conflict if it has changed since it was decided about.
func (r *Requests) read(ctx context.Context, pod *tracker.Pod) (Attempt, error) {
	found, err := r.pods.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch failure := Classify(err); {
	case failure == NotFound:
		return Attempt{Outcome: Gone}, nil
	case failure != NoFailure:
		return Attempt{}, fmt.Errorf("read pod: %w", err)
	case found.UID != pod.UID:
		return Attempt{Outcome: Gone}, nil
	case found.DeletionTimestamp != nil:
		return Attempt{Outcome: Terminating, Answer: found}, nil
	case found.ResourceVersion != pod.ResourceVersion:
		return Attempt{Answer: found, Changed: true}, fmt.Errorf("read pod: %w", NewConflict(found.Name, errChanged))
	}
	return Attempt{}, nil
}

// NewConflict returns a conflict error for a pod that has changed since it was decided about.
func NewConflict(name string, cause error) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, cause)
}

// isOther reports whether a 404 is about another object than the pod: a budget that was deleted
// during the request.
func isOther(err error) bool {
	details := statusOf(err).Details
	return details != nil && details.Group != ""
}
