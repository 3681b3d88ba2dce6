package evictions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
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
	err = read(metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && wants.Namespace != "" && read(wants.Namespace) == nil {
		shown.eventNamespace = wants.Namespace
		found.Note("you may list events in namespace " + wants.Namespace + " alone: what nodes, rules and patches were told of holds is not known" +
			cli.Advice(err, "list", state.EventResource))
		return shown, found, nil
	}
	return shown, found, found.Lack(err, "list", state.EventResource, "what only they say of pods that are held is not known")
}

// eventSources returns the events about holds in a namespace, or in all if it is empty.
func eventSources(clients *cli.Clients, namespace string) []state.Source {
	var sources []state.Source
	for _, reason := range append(evictor.EventReasonsHeldUp(), evictor.EventHeld, evictor.EventReleased) {
		source := state.NewSource(clients, state.EventResource, clients.Kubernetes.CoreV1().Events(namespace), &corev1.Event{})
		source.FieldSelector = fields.OneTermEqualSelector("reason", reason).String()
		sources = append(sources, source)
	}
	return sources
}

// feed watches a cluster. Its methods are safe for concurrent use.
type feed struct {
	clients *cli.Clients
	clock   clock.PassiveClock
	opts    *options
	// synced is closed once the first lists are complete. changed receives after changes.
	synced  chan struct{}
	changed chan struct{}
	watches []*feedWatch
	// stop ends run with an error.
	stop context.CancelCauseFunc

	mu sync.Mutex
	// shown is the current state, fed by the watches.
	shown Cluster
	// policies has the EvictionPolicies; nil if they are not watched.
	policies toolscache.Store
	// snapshot is that of the first read, with the Lease as it is, and refused are the sentences
	// about forbidden watches, by resource.
	snapshot *state.Cluster
	refused  map[string]string
	// trouble is the last error of a watch, and troubleAt its time.
	trouble   string
	troubleAt time.Time
}

// feedWatch is the watch of one resource.
type feedWatch struct {
	resource schema.GroupResource
	run      func(ctx context.Context)
	// synced is closed after the first list, and refused when the watch is forbidden.
	synced  <-chan struct{}
	refused chan struct{}
	once    sync.Once
}

// run watches the cluster until ctx is done, and then returns nil. Other errors have advice.
func (f *feed) run(ctx context.Context) error {
	shown, first, err := Read(ctx, f.clients, f.clock.Now(), f.opts.wants)
	f.clients.Progress.End()
	if err != nil {
		return state.UnlessDone(ctx, err)
	}
	if err := f.check(first); err != nil {
		return err
	}
	watching, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	f.stop = stop
	// The watches feed another tracker, and read events again.
	f.snapshot, f.shown = first, *shown
	f.shown.Tracker, f.shown.Events, f.shown.Set, f.shown.Policies = tracker.New(), Events{}, nil, nil
	devices, err := f.open(ctx, first, shown.eventNamespace)
	if err != nil {
		return state.UnlessDone(ctx, err)
	}
	for _, w := range f.watches {
		running.Go(func() { w.run(watching) })
	}
	running.Go(func() { f.pollLease(watching, first) })
	claims := devices != nil
	for _, w := range f.watches {
		select {
		case <-w.synced:
		case <-w.refused:
			claims = claims && w.resource != state.ClaimResource // Without them, devices have no known users.
		case <-watching.Done():
			return state.UnlessDone(ctx, context.Cause(watching))
		}
	}
	if claims {
		devices.SetKnown(true)
	}
	close(f.synced)
	<-watching.Done()
	return state.UnlessDone(ctx, context.Cause(watching))
}

// check returns an error if an object of the filter does not exist or, with untilDone, a resource
// that evicts pods could not be read.
func (f *feed) check(first *state.Cluster) error {
	var lacks []string
	for _, resource := range evicting {
		if f.opts.untilDone && first.Unread(resource.Resource) {
			lacks = append(lacks, "you may not list "+resource.Resource+cli.AskFor("list", resource))
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("whether no pod has to leave cannot be told: %s", strings.Join(lacks, "; "))
	}
	return f.opts.check(first)
}

// open prepares the watches of all served resources. Events are those of a namespace, or of all
// if it is empty. The returned feed of devices is nil if they are not served.
func (f *feed) open(ctx context.Context, first *state.Cluster, eventNamespace string) (*informer.DeviceFeed, error) {
	client := f.clients.Kubernetes
	within := func(resource schema.GroupResource) informer.Option { // The namespace if the user may list only there.
		if first.Own(resource.Resource) {
			return informer.Within(f.opts.wants.Namespace)
		}
		return informer.Within(metav1.NamespaceAll)
	}
	pods, budgets := informer.NewPods(client, within(state.PodResource)), informer.NewBudgets(client, within(state.BudgetResource))
	podFeed, budgetFeed := informer.NewFeed(f.shown.Tracker, f, f.clock), informer.NewBudgetFeed(f.shown.Tracker)
	budgetFeed.OnBudget(f.PodsChanged)
	f.addInformer(state.PodResource, pods, podFeed.HasSynced)
	f.addInformer(state.BudgetResource, budgets, budgetFeed.HasSynced)
	err := budgetFeed.Attach(budgets)
	if first.Unread(state.NodeResource.Resource) { // The tracker would wait for them.
		err = errors.Join(podFeed.Attach(nil, pods), err)
	} else {
		nodes := informer.NewNodes(client)
		err = errors.Join(podFeed.Attach(nodes, pods), err)
		f.addInformer(state.NodeResource, nodes, podFeed.HasSynced)
	}
	if err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}

	namespaces := f.addSource(state.NewSource(f.clients, state.NamespaceResource, client.CoreV1().Namespaces(), &corev1.Namespace{}), func(any) {})
	f.shown.Namespaces = func(name string) (labels.Labels, bool) {
		object, _, _ := namespaces.GetByKey(name) // Its error is always nil.
		if namespace, ok := object.(*corev1.Namespace); ok {
			return labels.Set(namespace.Labels), true
		}
		if name != f.opts.wants.Namespace {
			return nil, false
		}
		return first.NamespaceLabels(name) // A user who may not watch namespaces may get one.
	}
	if first.Tollgate.Installed {
		for _, source := range eventSources(f.clients, eventNamespace) {
			f.addSource(source, f.shown.Events.Add) // Deleted events count: events are deleted after an hour.
		}
		served, err := state.Serves(ctx, f.clients, state.PolicyResource, v1alpha1.GroupVersion.Version)
		if err != nil {
			return nil, err
		}
		if served {
			f.policies = f.addSource(state.NewCustomSource(f.clients, state.PolicyResource, v1alpha1.GroupVersion.Version), func(any) { f.compile() })
		}
	}

	groups, err := state.ServesPodGroups(ctx, f.clients)
	if err != nil {
		return nil, err
	}
	if served, err := state.Serves(ctx, f.clients, state.ClaimResource, "v1"); err != nil || !served {
		return nil, err
	}
	devices := informer.NewDeviceFeed(f.shown.Tracker, f, f.clock)
	devices.SetPodGroups(groups)
	f.addWatch(state.ClaimResource, func(report func(error)) *informer.Watch {
		return informer.NewClaimWatch(client, devices.Claims(), report, within(state.ClaimResource))
	})
	f.addWatch(state.SliceResource, func(report func(error)) *informer.Watch {
		return informer.NewSliceWatch(client, devices.Slices(), report)
	})
	if first.RuleVersion != "" {
		f.addWatch(informer.RuleResource, func(report func(error)) *informer.Watch {
			return informer.NewRuleWatch(f.clients.Dynamic, first.RuleVersion, devices.Rules(), report)
		})
	}
	return devices, nil
}

func (f *feed) add(resource schema.GroupResource) *feedWatch {
	w := &feedWatch{resource: resource, refused: make(chan struct{})}
	f.watches = append(f.watches, w)
	return w
}

// addInformer adds the watch of an informer. HandlersSynced reports whether the handlers have
// processed the first list, which is later than that of the informer.
func (f *feed) addInformer(resource schema.GroupResource, of toolscache.SharedIndexInformer, handlersSynced toolscache.InformerSynced) {
	w, synced := f.add(resource), make(chan struct{})
	w.synced = synced
	w.run = func(ctx context.Context) {
		// It returns an error only after the start.
		_ = of.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) { f.failed(w, err) })
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if toolscache.WaitForCacheSync(ctx.Done(), handlersSynced) {
				close(synced)
			}
		})
		of.RunWithContext(ctx)
		waiting.Wait()
	}
}

// addWatch adds a watch of tracker/informer.
func (f *feed) addWatch(resource schema.GroupResource, of func(report func(error)) *informer.Watch) {
	w := f.add(resource)
	from := of(func(err error) { f.failed(w, err) })
	w.synced, w.run = from.Synced(), from.Run
}

// addSource adds the watch of a source, and returns its objects. Changed is called under the lock
// with each changed object.
func (f *feed) addSource(source state.Source, changed func(object any)) toolscache.Store {
	w := f.add(source.Resource)
	handle := func(object any) { f.change(func() { changed(object) }) }
	store, controller := source.Watch(toolscache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }, DeleteFunc: handle,
	}, func(err error, _ string) { f.failed(w, err) })
	w.synced, w.run = controller.HasSyncedChecker().Done(), controller.RunWithContext
	return store
}

// failed records an error of a watch, nil for none. A forbidden watch that is required ends run.
func (f *feed) failed(w *feedWatch, err error) {
	if err == nil {
		return
	}
	refused := state.Refusal(err, "watch", w.resource)
	required := w.resource == state.PodResource || w.resource == state.NodeResource || f.opts.untilDone && slices.Contains(evicting, w.resource)
	if refused != nil && required {
		f.stop(refused)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if refused == nil {
		f.trouble, f.troubleAt = "watch "+w.resource.String()+": "+err.Error(), f.clock.Now()
		return
	}
	if !f.snapshot.Unread(w.resource.Resource) {
		f.refused[w.resource.String()] = refused.Error()
	}
	w.once.Do(func() { close(w.refused) })
}

// pollLease reads the Lease of Tollgate at intervals until ctx is done.
func (f *feed) pollLease(ctx context.Context, first *state.Cluster) {
	const interval = 15 * time.Second
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		again, err := first.Again(ctx, f.clients, f.clock.Now())
		f.change(func() {
			if err != nil {
				f.trouble, f.troubleAt = err.Error(), f.clock.Now()
				return
			}
			is := NewCluster(again)
			f.shown.Terms, f.shown.Rules, f.snapshot = is.Terms, is.Rules, again
			f.compile()
		})
	}
}

// change updates state besides the tracker, under the lock.
func (f *feed) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	state.Signal(f.changed)
}

// compile compiles the policies in force. The caller holds mu.
func (f *feed) compile() {
	f.shown.Policies, f.shown.Set = nil, nil
	if f.policies == nil {
		return
	}
	for _, object := range f.policies.List() {
		var policy v1alpha1.EvictionPolicy
		if o, ok := object.(*unstructured.Unstructured); ok && runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy) == nil {
			f.shown.Policies = append(f.shown.Policies, policy)
		}
	}
	slices.SortFunc(f.shown.Policies, func(a, b v1alpha1.EvictionPolicy) int { return cmp.Compare(a.Name, b.Name) })
	if f.shown.Terms.Policies {
		f.shown.Set = eviction.Compile(f.shown.Policies)
	}
}

// list returns the current evictions that match the filter, and the cluster.
func (f *feed) list(now time.Time) ([]Eviction, *state.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown.List(now, &f.opts.filter), f.snapshot.With(now, f.shown.Tracker, f.shown.Policies)
}

// lives reports whether a pod exists and is neither finished nor terminating.
func (f *feed) lives(key tracker.Key) bool {
	situation, found := f.shown.Tracker.Lookup(key)
	return found && !situation.Pod.Finished && !situation.Pod.Terminating
}

// notes returns sentences about missing data and about errors in the last 15 s.
func (f *feed) notes(now time.Time) []string {
	const lately = 15 * time.Second
	f.mu.Lock()
	defer f.mu.Unlock()
	notes := slices.Clone(f.snapshot.Missing())
	for _, resource := range slices.Sorted(maps.Keys(f.refused)) {
		notes = append(notes, f.refused[resource])
	}
	if f.trouble != "" && now.Sub(f.troubleAt) < lately {
		notes = append(notes, "what is shown may be old: "+f.trouble)
	}
	return notes
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
