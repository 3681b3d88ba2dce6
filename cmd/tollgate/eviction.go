package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
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

// addEvictor adds what watches pods, nodes and devices, and on the leader what
// evicts and says so in the status of DeviceTaintRules. Admission does not wait
// until all pods of the cluster have been listed. It returns what is known of
// devices, nil where their taints are not followed.
func (p *program) addEvictor(ctx context.Context) (*tracker.Tracker, error) {
	nodes, devices := p.features.Enabled(features.NodeTaintEviction), p.features.Enabled(features.DeviceTaintEviction)
	if !nodes && !devices {
		return nil, nil //nolint:nilnil // Off is neither a tracker nor an error.
	}
	nodeEvents, deviceEvents, err := p.newRecorders(ctx)
	if err != nil {
		return nil, err
	}
	state := tracker.New()
	var feed *informer.Feed
	d := &deviceSide{}
	options := evictor.Options{
		Tracker:        state,
		Synced:         func() bool { return feed.HasSynced() },
		Leads:          p.leads,
		Client:         p.clientset,
		Recorder:       nodeEvents,
		DeviceRecorder: deviceEvents,
		Clock:          p.clock,
		Local:          p.local,
		Metrics:        evictor.NewMetrics(ctrlmetrics.Registry),
		Rules: evictor.Rules{
			ComparisonOperators: p.config.Eviction.ComparisonOperators,
			MaxHold:             p.config.Eviction.MaxHold.Duration,
		},
		Workers:        p.config.Eviction.Workers,
		AttemptTimeout: p.attemptTimeout(),
	}
	if devices {
		if err := d.equip(p, &options); err != nil {
			return nil, err
		}
	}
	runner, err := evictor.New(options)
	if err != nil {
		return nil, fmt.Errorf("make the evictor: %w", err)
	}
	feed = informer.NewFeed(state, runner, p.clock)
	if err := p.watchPods(feed, nodes); err != nil {
		return nil, err
	}
	if !devices {
		return nil, p.addLeader(runner.Start)
	}
	status, err := d.add(p, options, runner)
	if err != nil {
		return nil, err
	}
	return state, p.addLeader(func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return runner.Start(ctx) })
		group.Go(func() error { return status.Start(ctx) })
		return group.Wait()
	})
}

// attemptTimeout is for how long an attempt to evict may last: one that began just
// before the lease could no longer be renewed ends before someone else can have it.
func (p *program) attemptTimeout() time.Duration {
	return p.config.LeaderElection.LeaseDuration.Duration - p.config.LeaderElection.RenewDeadline.Duration
}

// watchPods adds the informers of pods and, if their taints are followed, of nodes.
func (p *program) watchPods(feed *informer.Feed, withNodes bool) error {
	pods := informer.NewPods(p.clientset)
	informers := []cache.SharedIndexInformer{pods}
	attach := func() error { return feed.Attach(nil, pods) }
	if withNodes {
		nodes := informer.NewNodes(p.clientset)
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
