package evictions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// evicting are the resources that evict pods.
var evicting = []schema.GroupResource{state.NodeResource, state.ClaimResource, state.SliceResource, informer.RuleResource}

// Read reads a snapshot of a cluster at now, and the holds in its events. It also returns the raw
// snapshot.
func Read(ctx context.Context, clients *cli.Clients, now time.Time, wants state.Wants) (*Cluster, *state.Cluster, error) {
	found, err := state.Read(ctx, clients, now, wants)
	if err != nil {
		return nil, nil, err
	}
	shown := NewCluster(found)
	if !found.Tollgate.Installed {
		return shown, found, nil
	}
	read := func(namespace string) error {
		for _, source := range eventSources(clients, namespace) {
			err := source.Each(ctx, clients, namespace, func(object runtime.Object) error {
				shown.Events.Add(object)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	err = read("")
	if apierrors.IsForbidden(err) && wants.Namespace != "" && read(wants.Namespace) == nil {
		shown.eventNamespace = wants.Namespace
		found.Note("you may list events in namespace " + wants.Namespace + " alone: what nodes, rules and patches were told of holds is not known" +
			cli.Advice(err, "list", state.EventResource))
		err = nil
	}
	return shown, found, found.Lack(err, "list", state.EventResource, "what only they say of pods that are held is not known")
}

// eventSources returns the events about holds in a namespace, or in all if it is empty.
func eventSources(clients *cli.Clients, namespace string) []state.Source {
	var sources []state.Source
	for _, reason := range append(evictor.EventReasonsHeldUp(), evictor.EventHeld, evictor.EventReleased) {
		source := state.NewSource(clients, state.EventResource, clients.Kubernetes.CoreV1().Events(namespace), &corev1.Event{})
		source.FieldSelector = "reason=" + reason
		sources = append(sources, source)
	}
	return sources
}

// feed watches a cluster. Its methods are safe for concurrent use.
type feed struct {
	*cli.Clients
	*options

	// group runs the watches, and its first error ends all.
	group *errgroup.Group
	// synced is closed once the first lists are complete. changed receives after changes.
	synced  chan struct{}
	changed chan struct{}
	// watches run the watches, and settled report for each whether its first list is complete or
	// refused.
	watches []func(ctx context.Context)
	settled []toolscache.InformerSynced

	mu sync.Mutex
	// shown is the current state, fed by the watches.
	shown Cluster
	// policies has the EvictionPolicies; nil if they are not watched.
	policies toolscache.Store
	// snapshot is that of the first read, with the Lease as it is, and refused are the sentences
	// about forbidden watches that it does not have, by resource.
	snapshot *state.Cluster
	refused  map[string]string
	// trouble is the last error of a watch, and troubleAt its time.
	trouble   string
	troubleAt time.Time
}

// run reads the cluster, and starts the watches, which run until ctx is done. Errors have advice.
func (f *feed) run(ctx context.Context) error {
	shown, first, err := Read(ctx, f.Clients, time.Now(), f.wants)
	f.Progress.End()
	if err != nil {
		return err
	}
	if err := f.check(first); err != nil {
		return err
	}
	// The watches feed another tracker.
	f.snapshot, f.shown = first, *shown
	f.shown.Tracker, f.shown.Set, f.shown.Policies = tracker.New(), nil, nil
	if err := f.open(ctx, first); err != nil {
		return err
	}
	for _, watch := range append(f.watches, f.pollLease) {
		f.group.Go(func() error {
			watch(ctx)
			return nil
		})
	}
	if toolscache.WaitForCacheSync(ctx.Done(), f.settled...) {
		if !f.unread(state.ClaimResource) { // Without them, devices have no known users.
			f.PodsChanged(f.shown.Tracker.SetDevicesKnown(true))
		}
		close(f.synced)
	}
	return nil
}

// open prepares the watches of all served resources.
func (f *feed) open(ctx context.Context, first *state.Cluster) error {
	client := f.Kubernetes
	within := func(resource schema.GroupResource) informer.Option { // The namespace if the user may list only there.
		namespace := ""
		if first.Own(resource.Resource) {
			namespace = f.wants.Namespace
		}
		return informer.Within(namespace)
	}
	podFeed, budgetFeed := informer.NewFeed(f.shown.Tracker, f, clock.RealClock{}), informer.NewBudgetFeed(f.shown.Tracker, f.PodsChanged)
	pods := f.addInformer(state.PodResource, informer.NewPods(client, within(state.PodResource)), podFeed.HasSynced)
	budgets := f.addInformer(state.BudgetResource, informer.NewBudgets(client, within(state.BudgetResource)), budgetFeed.HasSynced)
	var nodes toolscache.SharedIndexInformer
	if !first.Unread(state.NodeResource.Resource) { // Else the tracker would wait for them.
		nodes = f.addInformer(state.NodeResource, informer.NewNodes(client), podFeed.HasSynced)
	}
	if err := errors.Join(podFeed.Attach(nodes, pods), budgetFeed.Attach(budgets)); err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}

	namespaces := f.addSource(state.NewSource(f.Clients, state.NamespaceResource, client.CoreV1().Namespaces(), &corev1.Namespace{}), func(any) {})
	f.shown.Namespaces = func(name string) (labels.Labels, bool) {
		object, _, _ := namespaces.GetByKey(name) // Its error is always nil.
		if namespace, ok := object.(*corev1.Namespace); ok {
			return labels.Set(namespace.Labels), true
		}
		return first.NamespaceLabels(name) // A user who may not watch namespaces may get one.
	}
	if first.Tollgate.Installed {
		for _, source := range eventSources(f.Clients, f.shown.eventNamespace) {
			f.addSource(source, f.shown.Events.Add) // Deleted events count: events are deleted after an hour.
		}
		policies, err := state.CustomSources(ctx, f.Clients, state.PolicyResource)
		if err != nil {
			return err
		}
		for _, source := range policies {
			f.policies = f.addSource(source, func(any) { f.compile() })
		}
	}

	groups, err := state.ServesPodGroups(ctx, f.Clients)
	if err != nil {
		return err
	}
	if served, err := state.Serves(ctx, f.Clients, state.ClaimResource, "v1"); err != nil || !served {
		return err
	}
	devices := informer.NewDeviceFeed(f.shown.Tracker, f, clock.RealClock{})
	devices.SetPodGroups(groups)
	f.addWatch(state.ClaimResource, informer.NewClaimWatch(client, devices.Claims(), f.failed(state.ClaimResource), within(state.ClaimResource)))
	f.addWatch(state.SliceResource, informer.NewSliceWatch(client, devices.Slices(), f.failed(state.SliceResource)))
	if first.RuleVersion != "" {
		f.addWatch(informer.RuleResource, informer.NewRuleWatch(f.Dynamic, first.RuleVersion, devices.Rules(), f.failed(informer.RuleResource)))
	}
	return nil
}

// add adds a watch. Synced reports whether its first list is complete.
func (f *feed) add(resource schema.GroupResource, run func(ctx context.Context), synced toolscache.InformerSynced) {
	f.watches = append(f.watches, run)
	f.settled = append(f.settled, func() bool { return synced() || f.unread(resource) })
}

// addInformer adds the watch of an informer, which it returns. HandlersSynced reports whether the
// handlers have processed the first list, which is later than that of the informer.
func (f *feed) addInformer(
	resource schema.GroupResource, of toolscache.SharedIndexInformer, handlersSynced toolscache.InformerSynced,
) toolscache.SharedIndexInformer {
	// It returns an error only after the start.
	_ = of.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) { f.failed(resource)(err) })
	f.add(resource, of.RunWithContext, handlersSynced)
	return of
}

// addWatch adds a watch of tracker/informer.
func (f *feed) addWatch(resource schema.GroupResource, of *informer.Watch) {
	f.add(resource, of.Run, func() bool {
		select {
		case <-of.Synced():
			return true
		default:
			return false
		}
	})
}

// addSource adds the watch of a source, and returns its objects. Changed is called under the lock
// with each changed object.
func (f *feed) addSource(source state.Source, changed func(object any)) toolscache.Store {
	handle := func(object any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		changed(object)
		state.Signal(f.changed)
	}
	store, controller := source.Watch(toolscache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }, DeleteFunc: handle,
	}, func(err error, _ string) { f.failed(source.Resource)(err) })
	f.add(source.Resource, controller.RunWithContext, controller.HasSynced)
	return store
}

// failed returns the function that records errors of the watch of a resource, nil for none. A
// forbidden watch that is required ends all.
func (f *feed) failed(resource schema.GroupResource) func(error) {
	required := resource == state.PodResource || resource == state.NodeResource || f.untilDone && slices.Contains(evicting, resource)
	return func(err error) {
		if err == nil {
			return
		}
		refused := state.Refusal(err, "watch", resource)
		if refused != nil && required {
			f.group.Go(func() error { return refused })
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if refused == nil {
			f.trouble, f.troubleAt = "watch "+resource.String()+": "+err.Error(), time.Now()
		} else if !f.snapshot.Unread(resource.Resource) {
			f.refused[resource.String()] = refused.Error()
		}
	}
}

// unread reports whether the user may not list or watch a resource.
func (f *feed) unread(resource schema.GroupResource) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot.Unread(resource.Resource) || f.refused[resource.String()] != ""
}

// pollLease reads the Lease of Tollgate every 15 s until ctx is done.
func (f *feed) pollLease(ctx context.Context) {
	ticker := time.NewTicker(15 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		again, err := f.snapshot.Again(ctx, f.Clients, time.Now()) // Only this goroutine writes snapshot.
		f.mu.Lock()
		if err != nil {
			f.trouble, f.troubleAt = err.Error(), time.Now()
		} else {
			is := NewCluster(again)
			f.shown.Terms, f.shown.Rules, f.snapshot = is.Terms, is.Rules, again
			f.compile()
		}
		f.mu.Unlock()
		state.Signal(f.changed)
	}
}

// compile compiles the policies in force. The caller holds mu.
func (f *feed) compile() {
	if f.policies == nil {
		return
	}
	var policies []v1alpha1.EvictionPolicy
	for _, object := range f.policies.List() {
		if policy, err := cli.As[v1alpha1.EvictionPolicy](object.(*unstructured.Unstructured)); err == nil { // A custom source has no other objects.
			policies = append(policies, *policy)
		}
	}
	slices.SortFunc(policies, func(a, b v1alpha1.EvictionPolicy) int { return cmp.Compare(a.Name, b.Name) })
	f.shown.Policies, f.shown.Set = policies, nil
	if f.shown.Terms.Policies {
		f.shown.Set = eviction.Compile(policies)
	}
}

// frame returns the evictions that match the filter at now, and what changed since the last frame of a
// log. Its lacks are missing data and an error in the last 15 s.
func (f *feed) frame(now time.Time, log *Log) *Frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	lacks := slices.Concat(f.snapshot.Missing(), slices.Sorted(maps.Values(f.refused)))
	if f.trouble != "" && now.Sub(f.troubleAt) < 15*time.Second {
		lacks = append(lacks, "what is shown may be old: "+f.trouble)
	}
	lives := func(key tracker.Key) bool {
		situation, found := f.shown.Tracker.Lookup(key)
		return found && !situation.Pod.Finished && !situation.Pod.Terminating
	}
	list := f.shown.List(now, &f.filter)
	return &Frame{
		Now: now, List: list, Changed: log.Next(list, lives), Log: log, Lacks: lacks, Holds: Notes(list, now),
		Cluster: f.snapshot.With(now, f.shown.Tracker, f.shown.Policies),
	}
}

// PodsChanged implements the listener of tracker/informer, as do the methods below.
func (f *feed) PodsChanged(keys []tracker.Key) {
	if len(keys) > 0 {
		state.Signal(f.changed)
	}
}

// NodeChanged implements the listener of tracker/informer.
func (f *feed) NodeChanged(string) {}

// RuleChanged implements the listener of tracker/informer.
func (f *feed) RuleChanged(string) { state.Signal(f.changed) }
