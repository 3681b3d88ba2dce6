package state

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// Source is a resource in one version, which a command lists or watches.
type Source struct {
	Resource schema.GroupResource
	// FieldSelector restricts lists and watches, if not empty.
	FieldSelector string

	kind  runtime.Object
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// client tells client-go whether a watch may begin with a list.
	client any
}

// lister is the part of a client that a Source uses.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// NewSource returns the source of a typed client. Kind is an object of the resource.
func NewSource[L runtime.Object](clients *cli.Clients, resource schema.GroupResource, through lister[L], kind runtime.Object) Source {
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return through.List(ctx, options)
	}
	return Source{Resource: resource, kind: kind, list: list, watch: through.Watch, client: clients.Kubernetes}
}

// CustomSources returns the sources of the served ones of resources without a typed client, or with
// several versions. Their objects are unstructured.
func CustomSources(ctx context.Context, clients *cli.Clients, resources ...schema.GroupResource) ([]Source, error) {
	var served []Source
	for _, resource := range resources {
		version, err := Version(ctx, clients, resource)
		switch {
		case err == nil:
			s := NewSource(clients, resource, clients.Dynamic.Resource(resource.WithVersion(version)), &unstructured.Unstructured{})
			s.client = clients.Dynamic
			served = append(served, s)
		case !errors.Is(err, cli.ErrNotServed):
			return nil, err
		}
	}
	return served, nil
}

// Each calls take for each object, without its managed fields, which are often half of its size.
// Errors name the namespace, if it is not empty, and have advice.
func (s *Source) Each(ctx context.Context, clients *cli.Clients, namespace string, take func(runtime.Object) error) error {
	return cli.Each(ctx, clients, s.Resource, namespace, s.page, func(object runtime.Object) error {
		withoutManagedFields(object)
		return take(object)
	})
}

func (s *Source) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector = s.FieldSelector
	return s.list(ctx, options)
}

// Watch returns a store of the objects, without their managed fields, and the controller that
// keeps it in sync. Failed is called with the error of each request, nil for none, and its verb.
// Failed requests are retried.
func (s *Source) Watch(handler toolscache.ResourceEventHandler, failed func(err error, verb string)) (toolscache.Store, toolscache.Controller) {
	return toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := s.page(ctx, options)
				failed(err, "list")
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
				options.FieldSelector = s.FieldSelector
				events, err := s.watch(ctx, options)
				failed(err, "watch")
				return events, err
			},
		}, s.client),
		ObjectType: s.kind, Handler: handler,
		Transform: func(object any) (any, error) {
			withoutManagedFields(object)
			return object, nil
		},
	})
}

func withoutManagedFields(object any) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
}

// Refusal returns an error with advice if authorization caused err, else nil.
func Refusal(err error, verb string, resource schema.GroupResource) error {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return nil
	}
	return cli.Failed(err, verb+" "+resource.String(), verb, resource)
}

// Signal sends to a channel of size 1 without blocking.
func Signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
