// Package act makes the requests of an eviction: it sets the DisruptionTarget condition of a pod
// and deletes it, or calls the Eviction API. The UID and the resourceVersion of the pod that was
// decided about are preconditions. The package also classifies the errors of these requests.
package act

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// Evicted means that the API server accepted the deletion.
	Evicted Outcome = "evicted"
	// Gone means that the pod does not exist any more.
	Gone Outcome = "gone"
	// Terminating means that another client deleted the pod.
	Terminating Outcome = "terminating"
)

// Method is how a pod is evicted. The values are metric labels.
type Method string

// The methods.
const (
	// Delete deletes the pod, as Kubernetes' own controllers do.
	Delete Method = "delete"
	// Evict calls the Eviction API, which honours PodDisruptionBudgets.
	Evict Method = "evict"
)

// Order is an eviction to be carried out.
type Order struct {
	// Pod is the pod, in the version that was decided about.
	Pod    tracker.Pod
	Method Method
	// Cause is the kind of the object that carries the taint.
	Cause tracker.SourceKind
	// Mark is when method Delete sets the DisruptionTarget condition, empty for never: the
	// condition explains an eviction and must not prevent it.
	Mark v1alpha1.EvictionMark
	// Guarded is true if a known PodDisruptionBudget guards the pod.
	Guarded bool
	// Holds is called immediately before each write. An error means that the eviction must not
	// be carried out any more.
	Holds func() error
}

// Attempt is the result of one attempt to evict a pod.
type Attempt struct {
	Outcome Outcome
	// Answer is the pod as the API server last returned it; nil if it returned none.
	Answer *corev1.Pod
	// Changed is true if Answer differs from the pod that was decided about.
	Changed bool
	// Unmarkable is true if the API server refused the condition.
	Unmarkable bool
	// Sent is true if the deletion or eviction was sent, with any result.
	Sent bool
}

// MayHaveWorked reports whether the attempt evicted the pod, or may have.
func (a Attempt) MayHaveWorked(err error) bool {
	return (err == nil && a.Outcome == Evicted) || (a.Sent && Classify(err).Ambiguous())
}

// Effector carries out evictions. Every request has the UID and the resourceVersion of the pod that
// was decided about as preconditions.
type Effector interface {
	// Evict makes one attempt.
	Evict(ctx context.Context, what Order) (Attempt, error)
}

// Requests makes the requests of evictions. Method Delete evicts as Kubernetes does: it sets the
// DisruptionTarget condition and deletes the pod, normally by two requests without a read. It is
// goroutine-safe.
type Requests struct {
	pods  corev1client.PodsGetter
	clock clock.PassiveClock
	// leads reports whether this replica holds the lease.
	leads func() bool
	// late are deleted pods whose condition is set while they terminate.
	late chan lateMark
}

// New returns an Effector that makes its requests with a client.
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
	// The pod is marked first.
	if err := what.Holds(); err != nil {
		return Attempt{}, err
	}
	answer, err := r.mark(ctx, what.Pod, what.Cause)
	done, err := what.found(answer, err, "mark pod")
	if err != nil || done.Outcome != Unfinished {
		_, done.Unmarkable = StatusOf(err)
		return done, err
	}
	return r.delete(ctx, &what, done, answer.ResourceVersion)
}

// found returns the attempt after a request that returned the pod: it may be gone or terminating.
func (o *Order) found(answer *corev1.Pod, err error, verb string) (Attempt, error) {
	switch failure := Classify(err); {
	case failure == NotFound, failure == NoFailure && answer.UID != o.Pod.UID:
		return Attempt{Outcome: Gone}, nil
	case failure != NoFailure:
		return Attempt{}, fmt.Errorf("%s: %w", verb, err)
	case answer.DeletionTimestamp != nil:
		return Attempt{Outcome: Terminating, Answer: answer}, nil
	}
	return Attempt{Answer: answer}, nil
}

// refused reports whether the Eviction API refused an eviction for a reason that does not apply to
// a deletion. Invalid credentials, a changed pod and an overloaded API server apply to both.
func refused(err error) bool {
	failure := Classify(err)
	return (failure.Blocked() || failure == Denied || failure == Invalid) && !apierrors.IsUnauthorized(err)
}

// delete deletes the pod in a version. done is the attempt so far.
func (r *Requests) delete(ctx context.Context, what *Order, done Attempt, version string) (Attempt, error) {
	pod := &what.Pod
	return what.send(ctx, done, "delete pod", func(ctx context.Context) error {
		return r.pods.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: preconditions(pod, version)})
	})
}

// send makes the request that deletes or evicts the pod, unless Holds returns an error. It adds the
// result to done.
func (o *Order) send(ctx context.Context, done Attempt, verb string, request func(context.Context) error) (Attempt, error) {
	if err := o.Holds(); err != nil {
		return done, err
	}
	var written atomic.Bool
	err := request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }}))
	status, answered := StatusOf(err)
	delayed := err != nil && !answered && strings.Contains(err.Error(), limiterError)
	done.Sent = written.Load() || !delayed
	switch failure := Classify(err); {
	case failure == NoFailure:
		done.Outcome = Evicted
	case failure == NotFound && status.Details != nil && status.Details.Group != "": // A budget was deleted during the request.
		return done, fmt.Errorf("%s: %w", verb, NewConflict(o.Pod.Name, err))
	case failure == NotFound:
		done.Outcome = Gone
	default:
		return done, fmt.Errorf("%s: %w", verb, err)
	}
	return done, nil
}

// preconditions returns the UID of the pod and the version as preconditions.
func preconditions(pod *tracker.Pod, version string) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version}
}

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
		answer, err := r.pods.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		done, err := what.found(answer, err, "read pod")
		switch {
		case err != nil, done.Outcome != Unfinished:
			return done, err
		case answer.ResourceVersion != pod.ResourceVersion:
			done.Changed = true
			return done, fmt.Errorf("read pod: %w", NewConflict(pod.Name, errChanged))
		}
	}
	return what.send(ctx, Attempt{}, "evict pod", func(ctx context.Context) error {
		return r.pods.Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: preconditions(pod, pod.ResourceVersion)},
		})
	})
}

// NewConflict returns a conflict error for a pod that has changed since it was decided about.
func NewConflict(name string, cause error) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, cause)
}
