package webhook

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects that the cache does not know are read from the API server at this rate. A
// namespace is new once; whoever asks about many that do not exist is not an API
// server.
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
	flights     flights[*corev1.Namespace]
}

// NewNamespaces returns a reader of namespaces. Clock is this machine's.
func NewNamespaces(cache, live client.Reader, clock clock.PassiveClock) *Namespaces {
	return &Namespaces{
		cache: cache, live: live, clock: clock,
		unknown: rate.NewLimiter(liveReads, liveReadsOnce),
		confirm: rate.NewLimiter(confirmations, confirmationsOnce),
		flights: flights[*corev1.Namespace]{clock: clock},
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
	got, err := n.flights.read(ctx, name, n.clock.Now(), func(ctx context.Context) (*corev1.Namespace, error) {
		if !n.unknown.AllowN(n.clock.Now(), 1) {
			return nil, errTooManyNamespaces
		}
		return readNamespace(ctx, n.live, name)
	})
	return got.value, err
}

// Namespaces are confirmed at this rate. Only objects that want what a policy guards
// make it necessary, and of a healthy cluster's objects these are few.
const (
	confirmations     = 50 // a second
	confirmationsOnce = 200
)

// Confirmed returns a namespace as the API server has it now, so that labels that
// were changed a moment ago already count (C09). Beyond the rate it is the cache's,
// which lags by as much as a watch does.
func (n *Namespaces) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	if !n.confirm.AllowN(n.clock.Now(), 1) {
		return n.Namespace(ctx, name)
	}
	return readNamespace(ctx, n.live, name)
}

func readNamespace(ctx context.Context, reader client.Reader, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return &namespace, nil
}
