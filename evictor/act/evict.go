package act

import (
	"context"
	"errors"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// errChanged says that a pod is not the one, or not the version, that was decided on.
var errChanged = errors.New("pod changed since it was decided about")

// apiEvictor evicts by the Eviction API (policy/v1), which honours
// PodDisruptionBudgets and sets the DisruptionTarget condition itself.
type apiEvictor struct {
	pods corev1client.PodsGetter
}

// Evict makes one attempt. The API server takes a pod off its budget before it looks
// at the preconditions, and a pod that then stays is given back only after two minutes
// (pkg/registry/core/pod/storage/eviction.go). So a pod with a budget is read first:
// a version that is out of date must not cost its neighbours their turn.
func (v *apiEvictor) Evict(ctx context.Context, what Order) (Attempt, error) {
	var done Attempt
	pod := &what.Pod
	if what.Guarded {
		if done, err := v.look(ctx, &what); err != nil || done.Outcome != Unfinished {
			return done, err
		}
	}
	if err := what.still(); err != nil {
		return done, err
	}
	var err error
	done.Sent, err = send(ctx, func(ctx context.Context) error {
		return v.pods.Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: thatOne(pod, pod.ResourceVersion)},
		})
	})
	switch Classify(err) {
	case NoFailure:
		done.Outcome = Evicted
	case NotFound:
		if isOther(err) {
			return done, fmt.Errorf("evict pod: %w", NewConflict(pod.Name, err))
		}
		done.Outcome = Gone
	case Conflict, Throttled, BudgetExceeded, TwoBudgets, Denied, Invalid, Timeout, Unavailable:
		return done, fmt.Errorf("evict pod: %w", err)
	}
	return done, nil
}

// look reads the pod and makes sure that it is as it was decided about.
func (v *apiEvictor) look(ctx context.Context, what *Order) (Attempt, error) {
	found, err := v.pods.Pods(what.Pod.Namespace).Get(ctx, what.Pod.Name, metav1.GetOptions{})
	switch Classify(err) {
	case NoFailure:
	case NotFound:
		return Attempt{Outcome: Gone}, nil
	case Conflict, Throttled, BudgetExceeded, TwoBudgets, Denied, Invalid, Timeout, Unavailable:
		return Attempt{}, fmt.Errorf("read pod: %w", err)
	}
	switch {
	case found.UID != what.Pod.UID:
		return Attempt{Outcome: Gone}, nil
	case found.DeletionTimestamp != nil:
		return Attempt{Outcome: Terminating, Answer: found}, nil
	case found.ResourceVersion != what.Pod.ResourceVersion:
		return Attempt{Answer: found, Changed: true}, fmt.Errorf("read pod: %w", NewConflict(found.Name, errChanged))
	}
	return Attempt{}, nil
}

// NewConflict returns the error of a request for a pod that is not as it was decided about.
func NewConflict(name string, cause error) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, cause)
}

// isOther reports whether what is not found is something else than the pod: a budget
// that was deleted while it was asked.
func isOther(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Group != ""
}
