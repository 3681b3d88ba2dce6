package app

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers/status"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// everyReplica is a runnable of every replica, so that a new leader has full caches.
type everyReplica func(ctx context.Context)

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (work everyReplica) Start(ctx context.Context) error {
	work(ctx)
	return nil
}

// evictionState is the shared state of the evictor, the webhook and the controllers.
type evictionState struct {
	// tracker is nil when eviction is off for nodes and for devices.
	tracker *tracker.Tracker
	evictor *evictor.Evictor
	// view has what previews and the ledger share; its policies are those for previews and limits.
	view preview.View
	// pods reports whether the list of pods, and of nodes if they are watched, is complete, and
	// synced whether the policies are read too.
	pods, synced func() bool
	// nodes is true if node taints evict; devices is nil if device taints do not.
	nodes    bool
	devices  *deviceWatch
	carriers *carriers
	// ledger records which pods left because of taints.
	ledger *preview.Ledger
	// guard detects hung watches and implausible lists.
	guard   *informer.Guard
	changes *changeListeners
}

// watchesRules reports whether DeviceTaintRules taint devices, and may be written.
func (f *evictionState) watchesRules() bool { return f.devices != nil && !f.devices.withoutRules }

// addEvictor adds the watches of pods, nodes and devices, and for the leader the evictor and the
// status controller of DeviceTaintRules. Admission does not wait for the list of pods.
func (p *program) addEvictor(ctx context.Context) (*evictionState, error) {
	nodes, withDevices := p.features.Enabled(settings.NodeTaintEviction), p.features.Enabled(settings.DeviceTaintEviction)
	if !nodes && !withDevices {
		return &evictionState{}, nil
	}
	namespaces, err := p.manager.GetCache().GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	client, err := p.evictingClient()
	if err != nil {
		return nil, err
	}
	config, all, podTracker := &p.config.Eviction, &changeListeners{}, tracker.New()
	guard := informer.NewGuard(informer.GuardOptions{
		Clock: p.local, Metrics: informer.NewMetrics(ctrlmetrics.Registry), Silence: p.config.ClientConnection.WatchSilence.Duration,
	})
	feed := informer.NewFeed(podTracker, all, p.clock)
	requests := evictor.Requests{Client: client, Workers: config.Workers}
	var devices *deviceWatch
	var taintCarriers *carriers
	if withDevices {
		devices = p.newDeviceWatch(informer.NewDeviceFeed(podTracker, all, p.clock), guard)
		taintCarriers = &carriers{slices: p.clientset.ResourceV1().ResourceSlices(), rules: p.dynamic, served: devices.served, window: p.window()}
		requests.Carriers = taintCarriers
	}
	inForce := func() *eviction.Set {
		if current := p.store.Current(); current != nil {
			return current.Evictions
		}
		return nil
	}
	labelsOf := namespaceLabels(namespaces.(toolscache.SharedIndexInformer).GetIndexer()) // Informers of a cache have an index.
	keeper := breaker.New(breaker.Options{
		API: breaker.API{
			Reader: p.manager.GetAPIReader(), Status: p.manager.GetClient().Status(), Approvals: p.manager.GetClient(),
			Recorder: p.recorders.policies,
		},
		Cluster: breaker.Cluster{
			Policies: inForce, Live: podTracker.Live, Standing: podTracker.Standing,
		},
		Lease: breaker.Lease{Leads: p.leads, Timeout: p.attemptTimeout()},
		Clock: p.clock, Local: p.local, Metrics: breaker.NewMetrics(ctrlmetrics.Registry),
	})
	rules := decide.Rules{
		ComparisonOperators: config.ComparisonOperators,
		MaxHold:             config.MaxHold.Duration,
		Window:              config.Mode == configv1alpha1.EvictionWindow,
	}
	synced := func() bool { return p.store.Current() != nil && feed.HasSynced() }
	runner := evictor.New(evictor.Options{
		Source: evictor.Source{
			Tracker: podTracker,
			Synced:  synced,
			Missing: func() []string {
				var missing []string
				if !feed.HasSynced() {
					missing = append(missing, "nodes and pods")
				}
				if p.store.Current() == nil {
					missing = append(missing, "policies")
				}
				return missing
			},
		},
		Requests: requests,
		Events:   evictor.Events{Recorder: p.recorders.nodes, DeviceRecorder: p.recorders.devices},
		Lease:    evictor.Lease{Leads: p.leads, AttemptTimeout: p.attemptTimeout()},
		Clocks:   evictor.Clocks{Clock: p.clock, Local: p.local},
		Decisions: evictor.Decisions{
			Rules: rules, Mode: evictor.Mode(config.Mode), Policies: inForce, NamespaceLabels: labelsOf, Breaker: keeper.Ask,
		},
		Listeners: evictor.Listeners{
			FitChanged: p.fitChanged, RulesChanged: all.evictingRules.notify, PatchesChanged: all.evictingPatches.notify,
		},
		Metrics: evictor.NewMetrics(ctrlmetrics.Registry), Tracer: p.tracer,
	})
	keeper.Follow(runner)
	all.Evictor = runner
	all.rules.join(runner.RuleChanged)
	if _, err := namespaces.AddEventHandler(namespaceHandler(runner.NamespaceChanged)); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	p.whileLeading(runner.Start)
	p.addPolicyListeners(runner, keeper, inForce)
	// In other modes Kubernetes evicts too, and no policy protects a pod from that.
	previewed := inForce
	if config.Mode != configv1alpha1.EvictionReplace {
		previewed = func() *eviction.Set { return nil }
	}
	view := preview.View{Tracker: podTracker, Rules: rules, Policies: previewed, NamespaceLabels: labelsOf}
	state := &evictionState{
		tracker: podTracker, evictor: runner, view: view, pods: feed.HasSynced, synced: synced,
		nodes: nodes, devices: devices, carriers: taintCarriers,
		ledger: preview.NewLedger(&view, p.clock), guard: guard, changes: all,
	}
	feed.OnLeaving(state.ledger.Leaving)
	if err := p.watchPods(feed, nodes, guard); err != nil {
		return nil, err
	}
	if devices != nil {
		p.addDevices(state)
	}
	return state, nil
}

// addPolicyListeners adds, if EvictionPolicies are in force, their watch on every replica, and the
// controllers of their status.
func (p *program) addPolicyListeners(runner *evictor.Evictor, keeper *breaker.Keeper, inForce func() *eviction.Set) {
	if !p.features.Enabled(settings.EvictionPolicies) {
		return
	}
	p.add(everyReplica(func(ctx context.Context) {
		policiesChanged, stop := p.store.Subscribe()
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-policiesChanged:
				keeper.PoliciesChanged()
				runner.PoliciesChanged()
			}
		}
	}))
	status := status.NewHeld(p.controllerBase(), status.HeldOptions{Held: runner.Held, Settled: runner.Settled, Evictions: inForce})
	p.whileLeading(status.Start)
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.whileLeading(keeper.Start)
	}
}

// namespaceLabels returns a function that returns the labels of a namespace, which are read-only;
// false while it is not in the cache. A watch that hangs is not detected: labels may be as old as
// the watch, which the API server ends after five to ten minutes.
func namespaceLabels(namespaces toolscache.Indexer) func(name string) (labels.Labels, bool) {
	lister := corev1listers.NewNamespaceLister(namespaces)
	return func(name string) (labels.Labels, bool) {
		namespace, err := lister.Get(name)
		if err != nil {
			return nil, false
		}
		return labels.Set(namespace.Labels), true
	}
}

// namespaceHandler calls changed with the name of a namespace that is added or whose labels change.
func namespaceHandler(changed func(name string)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if namespace, ok := obj.(*corev1.Namespace); ok {
				changed(namespace.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok := before.(*corev1.Namespace)
			namespace, isNamespace := after.(*corev1.Namespace)
			if ok && isNamespace && !maps.Equal(old.Labels, namespace.Labels) {
				changed(namespace.Name)
			}
		},
	}
}

// evictingClient returns the client of the evictor, which does not sleep on Retry-After itself:
// the evictor handles it.
func (p *program) evictingClient() (kubernetes.Interface, error) {
	connection := protobuf(p.connection)
	connection.Wrap(act.PromptAnswers)
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("make a client for evictions: %w", err)
	}
	return clientset, nil
}

// attemptTimeout limits one eviction attempt, so that an attempt begun just before the renew
// deadline ends before another replica can take the lease.
func (p *program) attemptTimeout() time.Duration {
	return p.config.LeaderElection.LeaseDuration.Duration - p.config.LeaderElection.RenewDeadline.Duration
}

// watchPods adds the informers of pods and, if withNodes, of nodes.
func (p *program) watchPods(feed *informer.Feed, withNodes bool, guard *informer.Guard) error {
	pods := informer.NewPods(p.clientset, informer.Guarded(guard))
	p.add(everyReplica(pods.RunWithContext))
	var nodes toolscache.SharedIndexInformer
	if withNodes {
		nodes = informer.NewNodes(p.clientset, informer.Guarded(guard))
		p.add(everyReplica(nodes.RunWithContext))
	}
	if err := feed.Attach(nodes, pods); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	return nil
}

// addPreviews adds the watch of disruption budgets, and returns what computes what writes would do
// to pods; nil when eviction is off.
func (p *program) addPreviews(state *evictionState, patches *PatchFeed) (*preview.Limits, *handlers.Preview, error) {
	if state.tracker == nil {
		return nil, nil, nil
	}
	budgets, feed := informer.NewBudgets(p.clientset, informer.Guarded(state.guard)), informer.NewBudgetFeed(state.tracker, state.evictor.PodsChanged)
	if err := feed.Attach(budgets); err != nil {
		return nil, nil, fmt.Errorf("watch disruption budgets: %w", err)
	}
	p.add(everyReplica(budgets.RunWithContext))
	view := state.view
	view.PodsKnown, view.BudgetsKnown = state.pods, feed.HasSynced
	if state.nodes {
		view.NodesKnown = state.pods
	}
	if state.devices != nil {
		view.DevicesKnown = state.devices.claimsSynced
	}
	limits := &preview.Limits{
		View: &view, Ledger: state.ledger, Approvals: preview.ListApprovals(p.manager.GetClient()),
		Authorizer: p.operators, Clock: p.clock,
	}
	config := &handlers.Preview{
		View: &view, Limits: limits, Observe: p.config.Eviction.Mode == configv1alpha1.EvictionObserve,
		Off: map[tracker.SourceKind]string{}, Clock: p.clock, Metrics: handlers.NewPreviewMetrics(ctrlmetrics.Registry),
	}
	if gate := settings.DeviceTaintRules; !p.features.Enabled(gate) {
		config.Off[tracker.SourceRule], config.Off[tracker.SourcePatch] = string(gate), string(gate)
	}
	if gate := settings.ResourceSlicePatches; !p.features.Enabled(gate) {
		config.Off[tracker.SourcePatch] = string(gate)
	}
	if patches != nil {
		config.Selection = patches
	}
	return limits, config, nil
}
