package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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

// Reader is a client.Reader with the user's credentials.
type Reader struct{ clients *Clients }

// NewReader returns a reader.
func NewReader(clients *Clients) *Reader { return &Reader{clients} }

// Get implements client.Reader. It ignores options.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	resource, err := resourceOf(into)
	if err != nil {
		return err
	}
	object, err := r.clients.Dynamic.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return Failed(err, "get "+resource.GroupResource().String()+" "+key.Name, "get", resource.GroupResource())
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// List implements client.Reader. It ignores options and lists all objects of a kind in chunks.
func (r *Reader) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	resource, err := resourceOf(into)
	if err != nil {
		return err
	}
	list, of := &unstructured.UnstructuredList{}, resource.GroupResource()
	err = Each(ctx, r.clients, of, r.clients.List(of, resource.Version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		list.Items = append(list.Items, *object)
		return nil
	})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), into)
}

// resourceOf returns the resource of an object, or of the items of a list, by the usual plural
// rules.
func resourceOf(object runtime.Object) (schema.GroupVersionResource, error) {
	gvk, err := apiutil.GVKForObject(object, clientgoscheme.Scheme)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read %T: %w", object, err)
	}
	if meta.IsListType(object) {
		gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural, nil
}
