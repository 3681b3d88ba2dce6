package app

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers/status"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

// evictionBreakers applies EvictionPolicies and their circuit breakers to the evictor.
type evictionBreakers struct {
	mode   configv1alpha1.EvictionMode
	store  *policies.Store
	labels *NamespaceLabels
	keeper *breaker.Keeper
	// runner is the evictor. It is set after newBreakers, because it needs the options from here.
	runner *evictor.Evictor
}

func (p *program) newBreakers(ctx context.Context, store *policies.Store, podTracker *tracker.Tracker) (*evictionBreakers, error) {
	r := &evictionBreakers{mode: p.config.Eviction.Mode, store: store}
	var err error
	if r.labels, err = Watch(ctx, p.manager.GetCache(), r.namespaceChanged); err != nil {
		return nil, err
	}
	r.keeper = breaker.New(breaker.Options{
		Reader: p.manager.GetAPIReader(), Status: p.manager.GetClient().Status(), Approvals: p.manager.GetClient(),
		Policies: r.policies, Live: podTracker.Live,
		Held:     func() map[types.UID]int { return r.runner.HeldByPolicy() },
		Settled:  func() bool { return r.runner.Settled() },
		Standing: preview.NewView(preview.Options{Tracker: podTracker}).FirstStanding,
		Released: func(policy types.UID) { r.runner.WakeHeld(policy) },
		Leads:    p.leads,
		Clock:    p.clock, Local: p.local, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: breaker.NewMetrics(ctrlmetrics.Registry),
	})
	return r, nil
}

// configure sets the options of the evictor that EvictionPolicies need.
func (r *evictionBreakers) configure(options *evictor.Options) {
	synced := options.Synced
	options.Synced = func() bool { return r.store.Current() != nil && synced() }
	missing := options.Missing
	options.Missing = func() []string {
		if r.store.Current() != nil {
			return missing()
		}
		return append(missing(), "policies")
	}
	options.Policies, options.NamespaceLabels, options.Breakers = r.policies, r.labels.Of, r.keeper
}

// policies returns the EvictionPolicies in force; nil before they are read.
func (r *evictionBreakers) policies() *eviction.Set {
	current := r.store.Current()
	if current == nil {
		return nil
	}
	return current.Evictions
}

// previewPolicies returns the policies for previews and limits; nil unless the mode is Replace.
// In other modes Kubernetes evicts too, and no policy protects a pod.
func (r *evictionBreakers) previewPolicies() *eviction.Set {
	if r.mode != configv1alpha1.EvictionReplace {
		return nil
	}
	return r.policies()
}

// namespaceChanged requeues the held pods of a namespace.
func (r *evictionBreakers) namespaceChanged(namespace string) {
	if r.runner != nil {
		r.runner.NamespaceChanged(namespace)
	}
}

// watchPolicies forwards policy changes until ctx is done.
func (r *evictionBreakers) watchPolicies(ctx context.Context) {
	policiesChanged, stop := r.store.Subscribe()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-policiesChanged:
			r.keeper.PoliciesChanged()
			r.runner.PoliciesChanged()
		}
	}
}

// addBreakers adds the watch of the policies, and the leader's controllers of their status.
func (p *program) addBreakers(r *evictionBreakers) error {
	if !p.features.Enabled(settings.EvictionPolicies) {
		return nil
	}
	if err := p.manager.Add(everyReplica(r.watchPolicies)); err != nil {
		return fmt.Errorf("follow EvictionPolicies: %w", err)
	}
	status := status.NewHeld(status.HeldOptions{
		Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(), Policies: r.policies,
		Held: r.runner.Held, Settled: r.runner.Settled,
		Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
	})
	p.leaderTasks = append(p.leaderTasks, status.Start)
	if r.mode != configv1alpha1.EvictionObserve {
		p.leaderTasks = append(p.leaderTasks, r.keeper.Start)
	}
	return nil
}
