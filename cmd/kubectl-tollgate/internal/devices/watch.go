package devices

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// watch keeps a store in sync with the cluster.
type watch struct {
	controller toolscache.Controller
	// refuse is called if the watch is forbidden. It is set before the controller runs.
	refuse context.CancelCauseFunc
}

// lister is the part of a client that watches use.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// watchOf returns a watch that fills a store and signals changes. Errors other than forbidden are
// retried.
func watchOf[L runtime.Object](f *follower, store *toolscache.Store, resource schema.GroupResource, through lister[L], client any, kind runtime.Object) *watch {
	w := &watch{}
	refused := func(err error, verb string) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			w.refuse(cli.Failed(err, verb+" "+resource.String(), verb, resource))
		}
	}
	*store, w.controller = toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := through.List(ctx, options)
				if err != nil {
					refused(err, "list")
					return nil, err
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
				events, err := through.Watch(ctx, options)
				refused(err, "watch")
				return events, err
			},
		}, client),
		ObjectType: kind,
		Handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.nudge() }, UpdateFunc: func(_, _ any) { f.nudge() }, DeleteFunc: func(any) { f.nudge() },
		},
		Transform: func(object any) (any, error) {
			if o, ok := object.(metav1.Object); ok {
				o.SetManagedFields(nil)
			}
			return object, nil
		},
	})
	return w
}

// nudge sends to a buffered signal channel without blocking.
func (f *follower) nudge() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
