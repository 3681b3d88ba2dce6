package evictor

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

// method is how a pod is made to leave. The values are metric labels.
type method string

const (
	// methodDelete deletes the pod, as Kubernetes' own controllers do.
	methodDelete method = "delete"
	// methodEvict asks the Eviction API, which honours PodDisruptionBudgets.
	methodEvict method = "evict"
)

// order is what is to be done to a pod.
type order struct {
	// pod is the pod, in the version that was decided on.
	pod    tracker.Pod
	method method
	// cause is the kind of object that carries the taint because of which it leaves.
	cause tracker.SourceKind
	// mark is true when the DisruptionTarget condition is to be set before a deletion:
	// it explains an eviction and must not prevent it. The Eviction API sets its own.
	mark bool
	// guarded is true when a PodDisruptionBudget is known that guards the pod.
	guarded bool
	// holds is asked immediately before each request: an error says that the decision is
	// not to be carried out any more. Nil stands for one that always is.
	holds func() error
}

// still returns an error if the decision is not to be carried out any more.
func (o *order) still() error {
	if o.holds == nil {
		return nil
	}
	return o.holds()
}

// attempt is what came of one try to evict a pod.
type attempt struct {
	outcome Outcome
	// answer is the pod as the API server last returned it, nil when it did not.
	answer *corev1.Pod
	// changed is true when answer shows that the pod is not as it was decided about.
	changed bool
	// unmarkable is true when the API server answered that it did not set the condition.
	unmarkable bool
	// sent is true when the pod's end was asked for, whatever came of it.
	sent bool
}

// mayHaveWorked reports whether the pod is gone because of the attempt, or may be.
func (a attempt) mayHaveWorked(err error) bool {
	return (err == nil && a.outcome == Evicted) || (a.sent && classify(err).Ambiguous())
}

// effector carries out evictions. It makes every request on condition that the pod
// still is the one, in the version, that the decision was made on.
type effector interface {
	// evict makes one attempt.
	evict(ctx context.Context, what order) (attempt, error)
}

// methods carries out each order by its method.
type methods map[method]effector

func newMethods(client kubernetes.Interface, now clock.PassiveClock) methods {
	pods := client.CoreV1()
	return methods{methodDelete: &deleter{pods: pods, clock: now}, methodEvict: &apiEvictor{pods: pods}}
}

func (m methods) evict(ctx context.Context, what order) (attempt, error) {
	return m[what.method].evict(ctx, what)
}

// deleter evicts as Kubernetes does: it sets the DisruptionTarget condition and
// deletes the pod. In the normal case that is two requests, neither of them a
// read.
type deleter struct {
	pods  corev1client.PodsGetter
	clock clock.PassiveClock
}

func (d *deleter) evict(ctx context.Context, what order) (attempt, error) {
	var done attempt
	pod := &what.pod
	version := pod.ResourceVersion
	if err := what.still(); err != nil {
		return done, err
	}
	if what.mark && !marked(*pod, what.cause) {
		answer, err := d.mark(ctx, *pod, what.cause)
		switch classify(err) {
		case NoFailure:
		case NotFound:
			done.outcome = Gone
			return done, nil
		case Conflict, Throttled, BudgetExceeded, TwoBudgets, Denied, Invalid, Timeout, Unavailable:
			done.unmarkable = answered(err)
			return done, fmt.Errorf("mark pod: %w", err)
		}
		done.answer = answer
		if answer.DeletionTimestamp != nil {
			done.outcome = Terminating
			return done, nil
		}
		version = answer.ResourceVersion
		if err := what.still(); err != nil {
			return done, err
		}
	}
	var err error
	done.sent, err = send(ctx, func(ctx context.Context) error {
		return d.pods.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: thatOne(pod, version)})
	})
	switch classify(err) {
	case NoFailure:
		done.outcome = Evicted
	case NotFound:
		done.outcome = Gone
	case Conflict, Throttled, BudgetExceeded, TwoBudgets, Denied, Invalid, Timeout, Unavailable:
		return done, fmt.Errorf("delete pod: %w", err)
	}
	return done, nil
}

// send makes a request and reports whether it may have left this process.
func send(ctx context.Context, request func(context.Context) error) (sent bool, err error) {
	var written atomic.Bool
	err = request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }}))
	return written.Load() || !heldBack(err), err
}

// thatOne returns the condition that the pod is still that pod in that version.
func thatOne(pod *tracker.Pod, version string) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version}
}
