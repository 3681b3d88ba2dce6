package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// ErrNotServed means that a required resource is not served.
var ErrNotServed = errors.New("the API server does not serve it")

// Version returns the first of the versions in which a resource is served, or ErrNotServed.
// Discovery is permitted to all users; a list of an unserved resource may be forbidden.
func (c *Clients) Version(ctx context.Context, resource schema.GroupResource, versions ...string) (string, error) {
	served := discovery.ToServerResourcesInterfaceWithContext(c.Kubernetes.Discovery())
	for _, version := range versions {
		group := resource.WithVersion(version).GroupVersion().String()
		list, err := served.ServerResourcesForGroupVersionWithContext(ctx, group)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("ask what is served of %s: %w", group, err)
		}
		if slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource.Resource }) {
			return version, nil
		}
	}
	return "", fmt.Errorf("list %s in version %s: %w", resource, versions[0], ErrNotServed)
}

// Each calls take for each object of a list of a namespace, or of all if it is empty. An object
// that is kept does not keep its page in memory. Errors have advice.
func Each[T, L runtime.Object](
	ctx context.Context, c *Clients, resource schema.GroupResource, namespace string, list func(context.Context, metav1.ListOptions) (L, error), take func(T) error,
) error {
	count := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	})
	// One page is buffered while the next is read: pages can be large.
	pages.PageBufferSize = 1
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("got %T", object)
		}
		count++
		c.Progress.Tell(count, resource.Resource+" read")
		return take(typed)
	})
	return FailedIn(err, namespace, "list", resource)
}

// EachCustom is Each for a resource without a typed client.
func (c *Clients) EachCustom(ctx context.Context, resource schema.GroupVersionResource, take func(*unstructured.Unstructured) error) error {
	return Each(ctx, c, resource.GroupResource(), metav1.NamespaceAll, c.Dynamic.Resource(resource).List, take)
}

// EachServed is EachCustom for the first of the versions in which a resource is served, which it
// returns.
func (c *Clients) EachServed(
	ctx context.Context, resource schema.GroupResource, take func(*unstructured.Unstructured) error, versions ...string,
) (version string, err error) {
	if version, err = c.Version(ctx, resource, versions...); err != nil {
		return "", err
	}
	return version, c.EachCustom(ctx, resource.WithVersion(version), take)
}

// AppendAll appends all objects of one of Tollgate's resources.
func AppendAll[T any](ctx context.Context, c *Clients, resource schema.GroupResource, objects *[]T) error {
	_, err := c.EachServed(ctx, resource, func(object *unstructured.Unstructured) error {
		typed, err := As[T](object)
		if err == nil {
			*objects = append(*objects, *typed)
		}
		return err
	}, v1alpha1.GroupVersion.Version)
	return err
}

// As converts an object to T.
func As[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return typed, nil
}
