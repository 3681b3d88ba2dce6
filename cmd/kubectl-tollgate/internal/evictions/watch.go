package evictions

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// The watched resources besides informer.RuleResource.
var (
	nodeResource      = schema.GroupResource{Resource: "nodes"}
	podResource       = schema.GroupResource{Resource: "pods"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
	budgetResource    = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}
	sliceResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
	claimResource     = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	podGroupResource  = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	policyResource    = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionpolicies"}
)

// reasons are the resources that evict pods.
var reasons = []schema.GroupResource{nodeResource, claimResource, sliceResource, informer.RuleResource}

// feedWatch is one watch.
type feedWatch struct {
	resource schema.GroupResource
	// needed is true if the list is impossible without it.
	needed bool
	run    func(ctx context.Context)
	// synced is closed after the first list, and refused when the watch is forbidden.
	synced  <-chan struct{}
	refused chan struct{}
	once    sync.Once
	// failed is called with errors. It is set before run is called.
	failed func(err error)
}

func (w *feedWatch) refuse() { w.once.Do(func() { close(w.refused) }) }

// report handles the result of a request.
func (w *feedWatch) report(err error) {
	if err != nil {
		w.failed(err)
	}
}

// watches returns the watches of all served resources. Events are those of a namespace, or of all
// if it is empty.
func (f *Feed) watches(ctx context.Context, first *state.Cluster, events string) ([]*feedWatch, error) {
	list, err := f.core(first)
	if err != nil {
		return nil, err
	}
	list = append(list, f.namespaceWatch())
	if first.Tollgate.Installed {
		for _, reason := range eventReasons() {
			list = append(list, f.eventWatch(events, reason))
		}
		policies, err := f.served(ctx, policyResource, v1alpha1.GroupVersion.Version)
		if err != nil {
			return nil, err
		}
		if policies {
			list = append(list, f.policyWatch())
		}
	}
	devices, err := f.devices(ctx, first)
	return append(list, devices...), err
}

func (f *Feed) served(ctx context.Context, resource schema.GroupResource, versions ...string) (bool, error) {
	_, err := f.clients.Version(ctx, resource, versions...)
	if errors.Is(err, cli.ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// core returns the watches of kinds that all clusters serve. Forbidden nodes are left out: the
// tracker would wait for them.
func (f *Feed) core(first *state.Cluster) ([]*feedWatch, error) {
	client := f.clients.Kubernetes
	pods, budgets := informer.NewPods(client, f.within(first, podResource)), informer.NewBudgets(client, f.within(first, budgetResource))
	feed, budgetFeed := informer.NewFeed(f.shown.Tracker, f, f.clock), informer.NewBudgetFeed(f.shown.Tracker)
	budgetFeed.OnBudget(f.PodsChanged)
	list := []*feedWatch{shared(podResource, true, pods, feed.HasSynced), shared(budgetResource, false, budgets, budgetFeed.HasSynced)}
	var err error
	if first.Unread(nodeResource.Resource) {
		err = feed.Attach(nil, pods)
	} else {
		nodes := informer.NewNodes(client)
		err = feed.Attach(nodes, pods)
		list = append(list, shared(nodeResource, true, nodes, feed.HasSynced))
	}
	if err := errors.Join(err, budgetFeed.Attach(budgets)); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	return list, nil
}

// within restricts a watch to the namespace if the user may list only there.
func (f *Feed) within(first *state.Cluster, resource schema.GroupResource) informer.Option {
	if first.Own(resource.Resource) {
		return informer.Within(f.wants.Namespace)
	}
	return informer.Within(metav1.NamespaceAll)
}

// shared returns the watch of an informer. HandlerSynced reports whether the handlers have
// processed the first list, which is later than that of the informer.
func shared(resource schema.GroupResource, needed bool, of toolscache.SharedIndexInformer, handlerSynced toolscache.InformerSynced) *feedWatch {
	done := make(chan struct{})
	w := &feedWatch{resource: resource, needed: needed, refused: make(chan struct{}), synced: done}
	w.run = func(ctx context.Context) {
		// It returns an error only after the start.
		_ = of.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) { w.failed(err) })
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if toolscache.WaitForCacheSync(ctx.Done(), handlerSynced) {
				close(done)
			}
		})
		of.RunWithContext(ctx)
		waiting.Wait()
	}
	return w
}

// devices returns the watches of devices that are served.
func (f *Feed) devices(ctx context.Context, first *state.Cluster) ([]*feedWatch, error) {
	groups, err := f.served(ctx, podGroupResource, "v1", "v1beta1", "v1alpha3", "v1alpha2")
	if err != nil {
		return nil, err
	}
	claims, err := f.served(ctx, claimResource, "v1")
	if err != nil || !claims {
		return nil, err
	}
	client, feed := f.clients.Kubernetes, informer.NewDeviceFeed(f.shown.Tracker, f, f.clock)
	feed.SetPodGroups(groups)
	list := []*feedWatch{
		fed(claimResource, func(report func(error)) *informer.Watch {
			return informer.NewClaimWatch(client, feed.Claims(), report, f.within(first, claimResource))
		}),
		fed(sliceResource, func(report func(error)) *informer.Watch { return informer.NewSliceWatch(client, feed.Slices(), report) }),
	}
	if first.RuleVersion != "" {
		list = append(list, fed(informer.RuleResource, func(report func(error)) *informer.Watch {
			return informer.NewRuleWatch(f.clients.Dynamic, first.RuleVersion, feed.Rules(), report)
		}))
	}
	known := &feedWatch{resource: claimResource, refused: make(chan struct{})}
	done := make(chan struct{})
	known.synced, known.run = done, func(ctx context.Context) {
		defer close(done)
		for _, w := range list {
			select {
			case <-w.synced:
			case <-w.refused:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-list[0].refused: // Devices have no known users without claims.
		default:
			feed.SetKnown(true)
		}
	}
	return append(list, known), nil
}

// fed returns a feedWatch of a watch of tracker/informer.
func fed(resource schema.GroupResource, open func(report func(error)) *informer.Watch) *feedWatch {
	w := &feedWatch{resource: resource, refused: make(chan struct{})}
	of := open(w.report)
	w.synced, w.run = of.Synced(), of.Run
	return w
}

// lister is the part of a client that watches use.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// watchOf returns a watch with a handler.
func watchOf[L runtime.Object](resource schema.GroupResource, through lister[L], client any, narrow metav1.ListOptions, kind runtime.Object, handler toolscache.ResourceEventHandler) *feedWatch {
	w := &feedWatch{resource: resource, refused: make(chan struct{})}
	_, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = narrow.FieldSelector
				list, err := through.List(ctx, options)
				w.report(err)
				if err != nil {
					return nil, err
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
				options.FieldSelector = narrow.FieldSelector
				events, err := through.Watch(ctx, options)
				w.report(err)
				return events, err
			},
		}, client),
		ObjectType: kind, Handler: handler,
	})
	w.synced, w.run = controller.HasSyncedChecker().Done(), controller.RunWithContext
	return w
}

// handlerOf returns a handler that calls set and drop with typed objects.
func handlerOf[T any](set, drop func(*T)) toolscache.ResourceEventHandler {
	give := func(to func(*T)) func(any) {
		return func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if object, ok := obj.(*T); ok {
				to(object)
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: give(set), UpdateFunc: func(_, obj any) { give(set)(obj) }, DeleteFunc: give(drop),
	}
}

func (f *Feed) namespaceWatch() *feedWatch {
	return watchOf(namespaceResource, f.clients.Kubernetes.CoreV1().Namespaces(), f.clients.Kubernetes, metav1.ListOptions{}, &corev1.Namespace{}, handlerOf(
		func(namespace *corev1.Namespace) {
			f.change(func() { f.namespaces[namespace.Name] = labels.Set(namespace.Labels) })
		},
		func(namespace *corev1.Namespace) { f.change(func() { delete(f.namespaces, namespace.Name) }) },
	))
}

// eventWatch watches events with a reason. Deletions are ignored: the API server deletes events
// after an hour.
func (f *Feed) eventWatch(namespace, reason string) *feedWatch {
	client := f.clients.Kubernetes
	return watchOf(eventResource, client.CoreV1().Events(namespace), client, eventsFor(reason), &corev1.Event{}, handlerOf(
		func(event *corev1.Event) { f.change(func() { f.shown.Said.Add(event) }) }, func(*corev1.Event) {},
	))
}

func (f *Feed) policyWatch() *feedWatch {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("EvictionPolicy"))
	typed := func(take func(*v1alpha1.EvictionPolicy)) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			policy := &v1alpha1.EvictionPolicy{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy); err == nil {
				take(policy)
			}
		}
	}
	client := f.clients.Dynamic
	return watchOf(policyResource, client.Resource(policyResource.WithVersion(v1alpha1.GroupVersion.Version)), client, metav1.ListOptions{}, kind,
		handlerOf(typed(f.setPolicy), typed(f.dropPolicy)))
}
