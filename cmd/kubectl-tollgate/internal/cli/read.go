package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"
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
		for i := range list.APIResources {
			if list.APIResources[i].Name == resource.Resource {
				return version, nil
			}
		}
	}
	return "", fmt.Errorf("list %s in version %s: %w", resource, versions[0], ErrNotServed)
}

// List returns the pages of a kind that is not served everywhere.
func (c *Clients) List(resource schema.GroupResource, version string) pager.ListPageFunc {
	client := c.Dynamic.Resource(resource.WithVersion(version))
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	}
}

// Pages returns the pages of a typed client.
func Pages[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// Each calls take for each object of a list. An object that is kept does not keep its page in
// memory. Errors have advice.
func Each[T runtime.Object](ctx context.Context, c *Clients, resource schema.GroupResource, list pager.ListPageFunc, options metav1.ListOptions, take func(T) error) error {
	return EachIn(ctx, c, resource, metav1.NamespaceAll, list, options, take)
}

// EachIn is Each for a list of a namespace, or of all if it is empty.
func EachIn[T runtime.Object](ctx context.Context, c *Clients, resource schema.GroupResource, namespace string, list pager.ListPageFunc, options metav1.ListOptions, take func(T) error) error {
	pages, count := pager.New(list), 0
	// One page is buffered while the next is read: pages can be large.
	pages.PageBufferSize = 1
	err := pages.EachListItemWithAlloc(ctx, options, func(object runtime.Object) error {
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

// As returns a function that converts objects of Clients.List to T and calls take.
func As[T any](kind string, take func(*T) error) func(*unstructured.Unstructured) error {
	return func(object *unstructured.Unstructured) error {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return fmt.Errorf("read %s %s: %w", kind, object.GetName(), err)
		}
		return take(typed)
	}
}
