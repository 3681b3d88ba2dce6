package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
	"github.com/tollgate-dev/tollgate/webhook/policies"
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
	rules   evictor.Rules
	// pods reports whether the list of pods, and of nodes if they are watched, is complete.
	pods func() bool
	// nodes is true if node taints evict; devices is nil if device taints do not.
	nodes   bool
	devices *deviceWatch
	// ledger records which pods left because of taints.
	ledger *preview.Ledger
	// breakers delay evictions.
	breakers *evictionBreakers
	// guard detects hung watches and implausible lists.
	guard *informer.Guard
}

// watchesRules reports whether DeviceTaintRules taint devices, and may be written.
func (f *evictionState) watchesRules() bool { return f.devices != nil && !f.devices.withoutRules }

// addEvictor adds the watches of pods, nodes and devices, and for the leader the evictor and the
// status controller of DeviceTaintRules. Admission does not wait for the list of pods.
func (p *program) addEvictor(ctx context.Context, store *policies.Store) (*evictionState, error) {
	nodes, devices := p.features.Enabled(settings.NodeTaintEviction), p.features.Enabled(settings.DeviceTaintEviction)
	if !nodes && !devices {
		return &evictionState{}, nil
	}
	evicting, err := p.evictingClient()
	if err != nil {
		return nil, err
	}
	podTracker := tracker.New()
	var feed *informer.Feed
	d := &deviceWatch{withoutRules: !p.features.Enabled(settings.DeviceTaintRules)}
	options := evictor.Options{
		Tracker: podTracker,
		Synced:  func() bool { return feed.HasSynced() },
		Missing: func() []string {
			if feed.HasSynced() {
				return nil
			}
			return []string{"nodes and pods"}
		},
		Leads:          p.leads,
		Client:         evicting,
		Recorder:       p.recorders.nodes,
		DeviceRecorder: p.recorders.devices,
		Clock:          p.clock,
		Local:          p.local,
		Metrics:        evictor.NewMetrics(ctrlmetrics.Registry),
		Rules: evictor.Rules{
			ComparisonOperators: p.config.Eviction.ComparisonOperators,
			MaxHold:             p.config.Eviction.MaxHold.Duration,
			Window:              p.config.Eviction.Mode == configv1alpha1.EvictionWindow,
		},
		Mode:           evictor.Mode(p.config.Eviction.Mode),
		FitChanged:     p.fitChanged(),
		Workers:        p.config.Eviction.Workers,
		AttemptTimeout: p.attemptTimeout(),
	}
	breakers, err := p.newBreakers(ctx, store, podTracker)
	if err != nil {
		return nil, err
	}
	breakers.configure(&options)
	if devices {
		d.configure(p, &options)
	}
	runner, err := evictor.New(options)
	if err != nil {
		return nil, fmt.Errorf("make the evictor: %w", err)
	}
	breakers.runner = runner
	p.leaderTasks = append(p.leaderTasks, runner.Start)
	if err := p.addBreakers(breakers); err != nil {
		return nil, err
	}
	state := &evictionState{
		tracker: podTracker, rules: options.Rules, nodes: nodes,
		pods:     func() bool { return feed.HasSynced() },
		ledger:   preview.NewLedger(podTracker, options.Rules, p.clock).WithPolicies(breakers.previewPolicies, breakers.labels.Of),
		breakers: breakers,
		guard: informer.NewGuard(informer.GuardOptions{
			Clock: p.local, Metrics: informer.NewMetrics(ctrlmetrics.Registry), Silence: p.config.ClientConnection.WatchSilence.Duration,
		}),
	}
	feed = informer.NewFeed(podTracker, runner, p.clock)
	feed.OnLeaving(state.ledger.Leaving)
	if err := p.watchPods(feed, nodes, state.guard); err != nil {
		return nil, err
	}
	if !devices {
		return state, nil
	}
	status, err := d.add(p, options, runner, state.guard)
	if err != nil {
		return nil, err
	}
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.leaderTasks = append(p.leaderTasks, status.Start)
	}
	state.devices = d
	return state, nil
}

// evictingClient returns the client of the evictor, which does not sleep on Retry-After itself:
// the evictor handles it.
func (p *program) evictingClient() (kubernetes.Interface, error) {
	connection := rest.CopyConfig(p.connection)
	connection.Wrap(evictor.PromptAnswers)
	clientset, err := kubernetes.NewForConfig(protobuf(connection))
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
	informers := []cache.SharedIndexInformer{pods}
	attach := func() error { return feed.Attach(nil, pods) }
	if withNodes {
		nodes := informer.NewNodes(p.clientset, informer.Guarded(guard))
		informers = append(informers, nodes)
		attach = func() error { return feed.Attach(nodes, pods) }
	}
	if err := attach(); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	for _, shared := range informers {
		if err := p.manager.Add(everyReplica(shared.RunWithContext)); err != nil {
			return fmt.Errorf("watch pods and nodes: %w", err)
		}
	}
	return nil
}
