package webhook

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces reads the labels of namespaces: from the cache, and from the API
// server where the cache does not know the namespace yet.
type Namespaces struct {
	// Cache is read first, Live after it.
	Cache, Live client.Reader
}

// Labels implements namespaceLabels. A namespace that does not exist is an
// error: the API server asks about pods in namespaces that do.
func (n Namespaces) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	object := metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	key := types.NamespacedName{Name: namespace}
	err := n.Cache.Get(ctx, key, &object)
	if apierrors.IsNotFound(err) {
		err = n.Live.Get(ctx, key, &object)
	}
	if err != nil {
		return nil, err
	}
	return object.Labels, nil
}
