package informer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// RuleResource names DeviceTaintRules.
var RuleResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}

// lister is the part of a client that informers use.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// requests are the lists and watches of one resource.
type requests struct {
	toolscache.ListerWatcher
	// under is the guard's part in them; nil for none.
	under *guarded
}

// objects returns what lists and watches through a client. The answers to all requests are
// reported: nil for a success.
func objects[L runtime.Object](resource string, through lister[L], client any, report func(error), options []Option) requests {
	from := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := through.List(ctx, options)
			report(err)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := through.Watch(ctx, options)
			report(err)
			return events, err
		},
	}
	under := settingsOf(options).guard.over(resource, from)
	return requests{toolscache.ToListWatcherWithWatchListSemantics(from, client), under}
}

func ignore(error) {}

// NewNodes returns an informer of nodes for a Feed.
func NewNodes(client kubernetes.Interface, options ...Option) toolscache.SharedIndexInformer {
	return newShared(objects("nodes", client.CoreV1().Nodes(), client, ignore, options), &corev1.Node{}, keepNodes())
}

// NewPods returns an informer of all pods for a Feed.
func NewPods(client kubernetes.Interface, options ...Option) toolscache.SharedIndexInformer {
	from := objects("pods", client.CoreV1().Pods(settingsOf(options).namespace), client, ignore, options)
	return newShared(from, &corev1.Pod{}, keepPods())
}

// NewBudgets returns an informer of PodDisruptionBudgets for a BudgetFeed.
func NewBudgets(client kubernetes.Interface, options ...Option) toolscache.SharedIndexInformer {
	through := client.PolicyV1().PodDisruptionBudgets(settingsOf(options).namespace)
	from := objects("poddisruptionbudgets", through, client, ignore, options)
	return newShared(from, &policyv1.PodDisruptionBudget{}, transform(tracker.BudgetOf))
}

func newShared(from requests, kind runtime.Object, keep toolscache.TransformFunc) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(from.ListerWatcher, kind, 0, toolscache.Indexers{})
	// It refuses a transform only once it runs.
	_ = informer.SetTransform(keep)
	from.under.follow(informer.GetStore())
	return informer
}

// Watch keeps one handler up to date with one resource for as long as it runs. While
// it does, the handler is called by the goroutine that changes the store, so that both
// always hold the same, and Forget leaves nothing behind. Forget runs after that, and
// may run while another watch calls a handler that feeds the same tracker: what that
// one Holds is left to it.
type Watch struct {
	handler    toolscache.ResourceEventHandler
	store      toolscache.Store
	controller toolscache.Controller
	guarded    *guarded
}

// NewSliceWatch returns a watch of ResourceSlices. The answers of the API server
// to its lists and watches are reported, nil for a success.
func NewSliceWatch(client kubernetes.Interface, handler toolscache.ResourceEventHandler, report func(error), options ...Option) *Watch {
	from := objects("resourceslices", client.ResourceV1().ResourceSlices(), client, report, options)
	return newWatch(from, &resourcev1.ResourceSlice{}, keepSlices(), handler)
}

// NewClaimWatch returns a watch of ResourceClaims, as NewSliceWatch does.
func NewClaimWatch(client kubernetes.Interface, handler toolscache.ResourceEventHandler, report func(error), options ...Option) *Watch {
	from := objects("resourceclaims", client.ResourceV1().ResourceClaims(settingsOf(options).namespace), client, report, options)
	return newWatch(from, &resourcev1.ResourceClaim{}, keepClaims(), handler)
}

// NewRuleWatch returns a watch of DeviceTaintRules in the given version of their
// API, as NewSliceWatch does.
func NewRuleWatch(client dynamic.Interface, version string, handler toolscache.ResourceEventHandler, report func(error), options ...Option) *Watch {
	from := objects(RuleResource.Resource, client.Resource(RuleResource.WithVersion(version)), client, report, options)
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(schema.GroupVersionKind{Group: RuleResource.Group, Version: version, Kind: "DeviceTaintRule"})
	return newWatch(from, kind, keepRules(), handler)
}

func newWatch(from requests, kind runtime.Object, keep toolscache.TransformFunc, handler toolscache.ResourceEventHandler) *Watch {
	store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: from.ListerWatcher, ObjectType: kind, Transform: keep, Handler: handler,
	})
	from.under.follow(store)
	return &Watch{handler: handler, store: store, controller: controller, guarded: from.under}
}

// Run watches until ctx is done. It is called once.
func (w *Watch) Run(ctx context.Context) {
	defer w.guarded.leave()
	w.controller.RunWithContext(ctx)
}

// Synced returns a channel that is closed once the handler has been told
// everything that the first list found.
func (w *Watch) Synced() <-chan struct{} { return w.controller.HasSyncedChecker().Done() }

// Holds reports whether the watch knows an object that another one of the same
// resource held. One that was created anew under the name of another is not it.
func (w *Watch) Holds(object any) bool {
	held, known, err := w.store.Get(object)
	if err != nil || !known {
		return false
	}
	one, err := meta.Accessor(held)
	if err != nil {
		return false
	}
	other, err := meta.Accessor(object)
	return err == nil && one.GetUID() == other.GetUID()
}

// Forget tells the handler that the objects that it was told about are gone, but for
// those that are to be kept. It is called after Run has returned.
func (w *Watch) Forget(keep func(object any) bool) {
	for _, object := range w.store.List() {
		if !keep(object) {
			w.handler.OnDelete(object)
		}
	}
}

// Permitted finds out whether one may list and watch through a client, by doing
// both for a moment.
func Permitted(ctx context.Context, through dynamic.ResourceInterface) error {
	if _, err := through.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	events, err := through.Watch(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	if err != nil {
		return err
	}
	events.Stop()
	return nil
}
