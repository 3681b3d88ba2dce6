package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// everyReplica runs a cache on every replica, so that a new leader has nothing
// to read first.
type everyReplica struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// addEvictor adds what watches pods and nodes, and on the leader what evicts.
// The watch has a cache of its own: admission does not wait until all pods of
// the cluster have been listed.
func (p *program) addEvictor(ctx context.Context) error {
	if !p.features.Enabled(features.NodeTaintEviction) {
		return nil
	}
	watched, err := p.newPodCache()
	if err != nil {
		return err
	}
	if err := p.manager.Add(everyReplica{watched}); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	nodes, err := watched.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	pods, err := watched.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	recorder, err := p.newRecorder(ctx)
	if err != nil {
		return err
	}
	state := tracker.New()
	var feed *informer.Feed
	runner, err := evictor.New(evictor.Options{
		Tracker:  state,
		Synced:   func() bool { return feed.HasSynced() },
		Leads:    p.leads,
		Client:   p.clientset,
		Recorder: recorder,
		Clock:    p.clock,
		Local:    p.local,
		Metrics:  evictor.NewMetrics(ctrlmetrics.Registry),
		Rules: evictor.Rules{
			ComparisonOperators: p.config.Eviction.ComparisonOperators,
			MaxHold:             p.config.Eviction.MaxHold.Duration,
		},
		Workers: p.config.Eviction.Workers,
		// An attempt that began just before the lease could no longer be renewed
		// ends before someone else can have it.
		AttemptTimeout: p.config.LeaderElection.LeaseDuration.Duration - p.config.LeaderElection.RenewDeadline.Duration,
	})
	if err != nil {
		return fmt.Errorf("make the evictor: %w", err)
	}
	feed = informer.NewFeed(state, runner, p.clock)
	if err := feed.Attach(nodes, pods); err != nil {
		return fmt.Errorf("watch pods and nodes: %w", err)
	}
	return p.addLeader(runner.Start)
}

func (p *program) newPodCache() (cache.Cache, error) {
	watched, err := cache.New(p.connection, cache.Options{
		Scheme:     p.manager.GetScheme(),
		Mapper:     p.manager.GetRESTMapper(),
		HTTPClient: p.manager.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Transform: informer.TrimPod},
			&corev1.Node{}: {Transform: informer.TrimNode},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of pods and nodes: %w", err)
	}
	return watched, nil
}
