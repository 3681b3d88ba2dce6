// Package act makes the requests of an eviction: it marks and deletes a pod or asks the Eviction
// API, each time for the pod in the version that was decided on, and says what an error means
// for the next attempt.
package act

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Outcome is how an eviction ended. The values are metric labels.
type Outcome string

// The outcomes.
const (
	// Unfinished is the outcome of an attempt that has to be repeated.
	Unfinished Outcome = ""
	// Evicted says that the API server accepted our deletion.
	Evicted Outcome = "evicted"
	// Gone says that there is no such pod any more.
	Gone Outcome = "gone"
	// Terminating says that somebody else deleted the pod.
	Terminating Outcome = "terminating"
)

// Method is how a pod is made to leave. The values are metric labels.
type Method string

// The methods.
const (
	// Delete deletes the pod, as Kubernetes' own controllers do.
	Delete Method = "delete"
	// Evict asks the Eviction API, which honours PodDisruptionBudgets.
	Evict Method = "evict"
)

// Order is what is to be done to a pod.
type Order struct {
	// Pod is the pod, in the version that was decided on.
	Pod    tracker.Pod
	Method Method
	// Cause is the kind of object that carries the taint because of which it leaves.
	Cause tracker.SourceKind
	// Mark is how method Delete sets the DisruptionTarget condition, empty for not at all: the
	// condition explains an eviction and must not prevent it.
	Mark v1alpha1.EvictionMark
	// Guarded is true when a PodDisruptionBudget is known that guards the pod.
	Guarded bool
	// Holds is asked immediately before each request that changes something: an error says that
	// the decision is not to be carried out any more.
	Holds func() error
}

// Attempt is the result of one try to evict a pod.
type Attempt struct {
	Outcome Outcome
	// Answer is the pod as the API server last returned it, nil when it did not.
	Answer *corev1.Pod
	// Changed is true when Answer shows that the pod is not as it was decided about.
	Changed bool
	// Unmarkable is true when the API server answered that it did not set the condition.
	Unmarkable bool
	// Sent is true when the end of the pod was asked for, with any result.
	Sent bool
}

// MayHaveWorked reports whether the pod is gone because of the attempt, or may be.
func (a Attempt) MayHaveWorked(err error) bool {
	return (err == nil && a.Outcome == Evicted) || (a.Sent && Classify(err).Ambiguous())
}

// Effector carries out evictions. It makes every request on condition that the pod
// still is the one, in the version, that the decision was made on.
type Effector interface {
	// Evict makes one attempt.
	Evict(ctx context.Context, what Order) (Attempt, error)
}

// Requests are the requests of evictions. Method Delete evicts as Kubernetes does: it sets the
// DisruptionTarget condition and deletes the pod. In the normal case that is two requests, neither
// of them a read. They are safe for concurrent use.
type Requests struct {
	pods  corev1client.PodsGetter
	clock clock.PassiveClock
	// leads reports whether this replica holds the lease.
	leads func() bool
	// late are the pods that are marked after they were deleted.
	late chan lateMark
}

// New returns an Effector that makes its requests by a client.
func New(client kubernetes.Interface, now clock.PassiveClock, leads func() bool) *Requests {
	return &Requests{pods: client.CoreV1(), clock: now, leads: leads, late: make(chan lateMark, mostLate)}
}

// Evict makes an attempt by the method of the order.
func (r *Requests) Evict(ctx context.Context, what Order) (Attempt, error) {
	switch {
	case what.Method == Evict:
		return r.evict(ctx, &what)
	case what.Mark == "" || marked(what.Pod, what.Cause):
		return r.delete(ctx, &what, Attempt{}, what.Pod.ResourceVersion)
	case what.Mark == v1alpha1.EvictionMarkByEvictionAPI && !what.Guarded:
		if done, err := r.evict(ctx, &what); !refused(err) {
			return done, err
		}
	case what.Mark == v1alpha1.EvictionMarkWhileTerminating && r.marksLate(&what.Pod):
		done, err := r.delete(ctx, &what, Attempt{}, what.Pod.ResourceVersion)
		if err == nil && done.Outcome == Evicted {
			r.markLate(what.Pod, what.Cause)
		}
		return done, err
	}
	return r.markAndDelete(ctx, &what)
}

// refused reports whether the Eviction API answered that it does not evict a pod, in a way that says
// nothing against deleting it. The credentials are as good for that, the pod has changed for that too, and
// an API server that has too much to do is left alone.
func refused(err error) bool {
	failure := Classify(err)
	return (failure.Blocked() || failure == Denied || failure == Invalid) && !apierrors.IsUnauthorized(err)
}

func (r *Requests) markAndDelete(ctx context.Context, what *Order) (Attempt, error) {
	if err := what.Holds(); err != nil {
		return Attempt{}, err
	}
	answer, err := r.mark(ctx, what.Pod, what.Cause)
	switch failure := Classify(err); {
	case failure == NotFound:
		return Attempt{Outcome: Gone}, nil
	case failure != NoFailure:
		return Attempt{Unmarkable: answered(err)}, fmt.Errorf("mark pod: %w", err)
	case answer.DeletionTimestamp != nil:
		return Attempt{Outcome: Terminating, Answer: answer}, nil
	}
	return r.delete(ctx, what, Attempt{Answer: answer}, answer.ResourceVersion)
}

// delete deletes the pod in a version. Done is what was done before.
func (r *Requests) delete(ctx context.Context, what *Order, done Attempt, version string) (Attempt, error) {
	pod := &what.Pod
	return what.send(ctx, done, "delete pod", func(ctx context.Context) error {
		return r.pods.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: thatOne(pod, version)})
	})
}

// send makes the request that ends the pod, if the decision still holds. It adds to done what came of it.
func (o *Order) send(ctx context.Context, done Attempt, verb string, request func(context.Context) error) (Attempt, error) {
	if err := o.Holds(); err != nil {
		return done, err
	}
	var written atomic.Bool
	err := request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }}))
	done.Sent = written.Load() || !heldBack(err)
	switch failure := Classify(err); {
	case failure == NoFailure:
		done.Outcome = Evicted
	case failure == NotFound && isOther(err):
		return done, fmt.Errorf("%s: %w", verb, NewConflict(o.Pod.Name, err))
	case failure == NotFound:
		done.Outcome = Gone
	default:
		return done, fmt.Errorf("%s: %w", verb, err)
	}
	return done, nil
}

// thatOne returns the condition that the pod is still that pod in that version.
func thatOne(pod *tracker.Pod, version string) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version}
}
