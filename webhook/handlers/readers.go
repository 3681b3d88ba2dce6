package handlers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects that the cache does not know are read from the API server at this rate. A namespace
// is new once; an API server does not ask about many that do not exist.
const (
	liveReads     = 20 // a second
	liveReadsOnce = 50
)

var errTooManyNamespaces = errors.New("too many unknown namespaces are asked about")

// Namespaces reads namespaces. It is safe for concurrent use.
type Namespaces struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	unknown     *rate.Limiter
	confirm     *rate.Limiter
	// unknowns and confirmed join the reads of the two methods.
	unknowns, confirmed flights[*corev1.Namespace]
}

// NewNamespaces returns a reader of namespaces. Clock is this machine's.
func NewNamespaces(cache, live client.Reader, clock clock.PassiveClock) *Namespaces {
	return &Namespaces{
		cache: cache, live: live, clock: clock,
		unknown:   rate.NewLimiter(liveReads, liveReadsOnce),
		confirm:   rate.NewLimiter(confirmations, confirmationsOnce),
		unknowns:  flights[*corev1.Namespace]{clock: clock},
		confirmed: flights[*corev1.Namespace]{clock: clock, gathers: gathering},
	}
}

// Namespace returns a namespace from the cache, and from the API server where the
// cache does not know it yet. One that does not exist is an error: the API server
// asks about objects in namespaces that do.
func (n *Namespaces) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := readNamespace(ctx, n.cache, name)
	if !apierrors.IsNotFound(err) {
		return namespace, err
	}
	got, err := n.unknowns.read(ctx, name, n.clock.Now(), func(ctx context.Context) (*corev1.Namespace, error) {
		if !n.unknown.AllowN(n.clock.Now(), 1) {
			return nil, errTooManyNamespaces
		}
		return readNamespace(ctx, n.live, name)
	})
	return got.value, err
}

// Namespaces are confirmed at this rate. Only objects with tolerations that a policy guards
// make it necessary, and of a healthy cluster's objects these are few.
const (
	confirmations     = 50 // a second
	confirmationsOnce = 200
)

// Confirmed returns a namespace as the API server has it now, so that labels that
// were changed a moment ago already count (C09). Requests at the same time share a read. Beyond the
// rate it is the cache's, which lags by as much as a watch does.
func (n *Namespaces) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	got, err := n.confirmed.read(ctx, name, n.clock.Now(), func(ctx context.Context) (*corev1.Namespace, error) {
		if !n.confirm.AllowN(n.clock.Now(), 1) {
			return n.Namespace(ctx, name)
		}
		return readNamespace(ctx, n.live, name)
	})
	return got.value, err
}

func readNamespace(ctx context.Context, reader client.Reader, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return &namespace, nil
}

// runtimeClasses returns the tolerations of a RuntimeClass.
type runtimeClasses interface {
	Tolerations(ctx context.Context, runtimeClass string) ([]corev1.Toleration, error)
}

// RuntimeClasses reads RuntimeClasses: from the cache, and from the API server
// where the cache does not know the class yet. The API server does the same, so
// the first pod of a new class is not refused the tolerations of the class.
// It is safe for concurrent use.
type RuntimeClasses struct {
	cache client.Reader
	live  *live
}

// NewRuntimeClasses returns a reader of RuntimeClasses. Clock is this machine's.
func NewRuntimeClasses(cache, reader client.Reader, clock clock.PassiveClock) *RuntimeClasses {
	return &RuntimeClasses{cache, &live{reader, clock, rate.NewLimiter(liveReads, liveReadsOnce)}}
}

// Tolerations returns the tolerations that the API server adds to pods of a RuntimeClass
// (TP-19). A class that does not exist adds nothing.
func (r *RuntimeClasses) Tolerations(ctx context.Context, runtimeClass string) ([]corev1.Toleration, error) {
	var class nodev1.RuntimeClass
	err := r.cache.Get(ctx, types.NamespacedName{Name: runtimeClass}, &class)
	if apierrors.IsNotFound(err) {
		_, err = r.live.read(ctx, "", runtimeClass, &class)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tolerations of RuntimeClass %s: %w", runtimeClass, err)
	}
	if class.Scheduling == nil {
		return nil, nil
	}
	return class.Scheduling.Tolerations, nil
}

// live reads objects from the API server itself: verdicts about them must not depend on events
// that a cache has not seen yet. It is safe for concurrent use.
type live struct {
	reader client.Reader
	clock  clock.PassiveClock
	limit  *rate.Limiter
}

// newLive returns a reader with a rate of its own, so that many reads of one kind cannot keep
// others from being made.
func newLive(reader client.Reader, clock clock.PassiveClock) *live {
	return &live{reader: reader, clock: clock, limit: rate.NewLimiter(confirmations, confirmationsOnce)}
}

var errTooManyReads = errors.New("too many objects have to be read to decide")

// read reads an object, and reports whether it exists.
func (l *live) read(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	if !l.limit.AllowN(l.clock.Now(), 1) {
		return false, errTooManyReads
	}
	err := l.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", into, types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return true, nil
}

// pod returns a pod, or nil when it does not exist.
func (l *live) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	if found, err := l.read(ctx, namespace, name, &pod); err != nil || !found {
		return nil, err
	}
	return &pod, nil
}

// claimsOf returns the claims that a pod, or a PodGroup, asks for, whose claims have the fields of
// those of pods; none when it does not exist. The API of groups has several versions, and the
// reference says which is served (VS-08).
func (l *live) claimsOf(ctx context.Context, namespace string, owner *metav1.OwnerReference) ([]corev1.PodResourceClaim, error) {
	if isPod(owner) {
		pod, err := l.pod(ctx, namespace, owner.Name)
		if err != nil || pod == nil || pod.UID != owner.UID {
			return nil, err
		}
		return pod.Spec.ResourceClaims, nil
	}
	var object unstructured.Unstructured
	object.SetAPIVersion(owner.APIVersion)
	object.SetKind(owner.Kind)
	found, err := l.read(ctx, namespace, owner.Name, &object)
	if err != nil || !found || object.GetUID() != owner.UID {
		return nil, err
	}
	var group struct {
		Spec struct {
			ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &group); err != nil {
		return nil, fmt.Errorf("read the claims of PodGroup %s/%s: %w", namespace, owner.Name, err)
	}
	return group.Spec.ResourceClaims, nil
}

// liveNodes reads the taints of nodes from the API server, so that a taint that was just
// added counts (C04). Users who may create pods cause such reads, also by dry runs, so the
// rate of reads is limited: beyond it, taints come from the cache, which lags as a watch
// does, and no user waits for another. It is safe for concurrent use.
type liveNodes struct {
	live *live
	// cache is nil where there is none. Too many reads are no verdict then.
	cache   client.Reader
	flights flights[nodeTaints]
}

// nodeTaints are the taints of a node, if it exists.
type nodeTaints struct {
	taints []corev1.Taint
	exists bool
}

func newLiveNodes(reader, cache client.Reader, clock clock.PassiveClock) *liveNodes {
	return &liveNodes{live: newLive(reader, clock), cache: cache, flights: flights[nodeTaints]{clock: clock}}
}

// taints returns the taints of a node; false when it does not exist.
func (n *liveNodes) taints(ctx context.Context, name string) ([]corev1.Taint, bool, error) {
	got, err := n.flights.read(ctx, name, n.live.clock.Now(), func(ctx context.Context) (nodeTaints, error) {
		var node corev1.Node
		found, err := n.live.read(ctx, "", name, &node)
		return nodeTaints{node.Spec.Taints, found}, err
	})
	if !errors.Is(err, errTooManyReads) || n.cache == nil {
		return got.value.taints, got.value.exists, err
	}
	var node corev1.Node
	err = n.cache.Get(ctx, types.NamespacedName{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read node %s from the cache: %w", name, err)
	}
	return node.Spec.Taints, true, nil
}

// flightTimeout is the time for one read that several requests wait for. Each of them waits no
// longer than its own time.
const flightTimeout = 2 * time.Second

// gathering is how long a read that a review cannot wait for twice waits for others to join it.
const gathering = time.Millisecond

// flights joins reads of the same object at the same time into one. No waiting request ends it
// for the others, and none gets the result of a read that began before it. It is safe for
// concurrent use.
type flights[T any] struct {
	clock clock.PassiveClock
	// gathers is how long a read waits for others to join it before it begins. Who comes later does not
	// wait for it then: reads of the same object overlap, and one begins in each such time at most.
	gathers time.Duration
	group   singleflight.Group
}

// landed is the result of a read, and when the read began: earlier writes are in it.
type landed[T any] struct {
	value T
	asOf  time.Time
}

// read returns the result of a read under a key that began no earlier than since. Unless reads gather,
// to wait for a read that is under way and begin another after it keeps it at one read at a time for
// each key, however many requests there are.
func (f *flights[T]) read(ctx context.Context, key string, since time.Time, read func(context.Context) (T, error)) (landed[T], error) {
	for {
		result := f.group.DoChan(key, func() (any, error) {
			// The request that came first may be over before the read is.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flightTimeout)
			defer cancel()
			if f.gathers > 0 {
				gathers, end := context.WithTimeout(ctx, f.gathers)
				<-gathers.Done()
				end()
				f.group.Forget(key)
			}
			got := landed[T]{asOf: f.clock.Now()}
			var err error
			got.value, err = read(ctx)
			return got, err
		})
		select {
		case <-ctx.Done():
			return landed[T]{}, fmt.Errorf("wait for what others read: %w", context.Cause(ctx))
		case r := <-result:
			if got := r.Val.(landed[T]); !got.asOf.Before(since) {
				return got, r.Err
			}
		}
	}
}
