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

// everyReplica is work of every replica, so that a new leader has nothing to read
// first.
type everyReplica func(ctx context.Context)

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (work everyReplica) Start(ctx context.Context) error {
	work(ctx)
	return nil
}

// followed is what is known of pods and of what they stand on.
type followed struct {
	// tracker is nil where nothing is followed.
	tracker *tracker.Tracker
	rules   evictor.Rules
	// pods reports whether all pods, and nodes if those are followed, are known.
	pods func() bool
	// nodes says whether taints of nodes are followed; devices is nil where those of
	// devices are not.
	nodes   bool
	devices *deviceSide
	// ledger knows which pods have left because of taints.
	ledger *preview.Ledger
	// restraint is what holds evictions back.
	restraint *restraint
	// guard keeps what is known close to what is so.
	guard *informer.Guard
}

// followsRules reports whether DeviceTaintRules taint devices, and may be written.
func (f *followed) followsRules() bool { return f.devices != nil && !f.devices.withoutRules }

// addEvictor adds what watches pods, nodes and devices, and on the leader what
// evicts and says so in the status of DeviceTaintRules. Admission does not wait
// until all pods of the cluster have been listed.
func (p *program) addEvictor(ctx context.Context, store *policies.Store) (*followed, error) {
	nodes, devices := p.features.Enabled(settings.NodeTaintEviction), p.features.Enabled(settings.DeviceTaintEviction)
	if !nodes && !devices {
		return &followed{}, nil
	}
	evicting, err := p.evictingClient()
	if err != nil {
		return nil, err
	}
	state := tracker.New()
	var feed *informer.Feed
	d := &deviceSide{withoutRules: !p.features.Enabled(settings.DeviceTaintRules)}
	options := evictor.Options{
		Tracker: state,
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
	bounds, err := p.newRestraint(ctx, store, state)
	if err != nil {
		return nil, err
	}
	bounds.restrain(&options)
	if devices {
		d.equip(p, &options)
	}
	runner, err := evictor.New(options)
	if err != nil {
		return nil, fmt.Errorf("make the evictor: %w", err)
	}
	bounds.runner = runner
	p.leading = append(p.leading, runner.Start)
	if err := p.addRestraint(bounds); err != nil {
		return nil, err
	}
	known := &followed{
		tracker: state, rules: options.Rules, nodes: nodes,
		pods:      func() bool { return feed.HasSynced() },
		ledger:    preview.NewLedger(state, options.Rules, p.clock).WithPolicies(bounds.foretold, bounds.labels.Of),
		restraint: bounds,
		guard: informer.NewGuard(informer.GuardOptions{
			Clock: p.local, Metrics: informer.NewMetrics(ctrlmetrics.Registry), Silence: p.config.ClientConnection.WatchSilence.Duration,
		}),
	}
	feed = informer.NewFeed(state, runner, p.clock)
	feed.OnLeaving(known.ledger.Leaving)
	if err := p.watchPods(feed, nodes, known.guard); err != nil {
		return nil, err
	}
	if !devices {
		return known, nil
	}
	status, err := d.add(p, options, runner, known.guard)
	if err != nil {
		return nil, err
	}
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.leading = append(p.leading, status.Start)
	}
	known.devices = d
	return known, nil
}

// evictingClient returns the client that evicts, which does not wait in the place of the
// evictor when the API server asks it to.
func (p *program) evictingClient() (kubernetes.Interface, error) {
	connection := rest.CopyConfig(p.connection)
	connection.Wrap(evictor.PromptAnswers)
	clientset, err := kubernetes.NewForConfig(protobuf(connection))
	if err != nil {
		return nil, fmt.Errorf("make a client for evictions: %w", err)
	}
	return clientset, nil
}

// attemptTimeout is for how long an attempt to evict may last: one that began just
// before the lease could no longer be renewed ends before someone else can have it.
func (p *program) attemptTimeout() time.Duration {
	return p.config.LeaderElection.LeaseDuration.Duration - p.config.LeaderElection.RenewDeadline.Duration
}

// watchPods adds the informers of pods and, if their taints are followed, of nodes.
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
