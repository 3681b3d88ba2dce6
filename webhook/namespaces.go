package webhook

import (
	"context"
	"errors"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces that the cache does not know are read from the API server at this
// rate. A namespace is new once; whoever asks about many that do not exist is not
// an API server.
const (
	liveReads     = 20 // a second
	liveReadsOnce = 50
)

var errTooManyNamespaces = errors.New("too many unknown namespaces are asked about")

// Namespaces reads the labels of namespaces: from the cache, and from the API
// server where the cache does not know the namespace yet. It is safe for
// concurrent use.
type Namespaces struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	limit       *rate.Limiter
	flight      singleflight.Group
}

// NewNamespaces returns a reader of namespaces. Clock is this machine's.
func NewNamespaces(cache, live client.Reader, clock clock.PassiveClock) *Namespaces {
	return &Namespaces{cache: cache, live: live, clock: clock, limit: rate.NewLimiter(liveReads, liveReadsOnce)}
}

// Labels implements namespaceLabels. A namespace that does not exist is an
// error: the API server asks about pods in namespaces that do.
func (n *Namespaces) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	object, err := get(ctx, n.cache, namespace)
	if apierrors.IsNotFound(err) {
		return n.readLive(ctx, namespace)
	}
	return object.Labels, err
}

func (n *Namespaces) readLive(ctx context.Context, namespace string) (map[string]string, error) {
	labels, err, _ := n.flight.Do(namespace, func() (any, error) {
		if !n.limit.AllowN(n.clock.Now(), 1) {
			return nil, errTooManyNamespaces
		}
		object, err := get(ctx, n.live, namespace)
		return object.Labels, err
	})
	if err != nil {
		return nil, err
	}
	return labels.(map[string]string), nil
}

func get(ctx context.Context, reader client.Reader, namespace string) (metav1.PartialObjectMetadata, error) {
	var object metav1.PartialObjectMetadata
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := reader.Get(ctx, types.NamespacedName{Name: namespace}, &object)
	return object, err
}
