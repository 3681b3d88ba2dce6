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

// restraint is what holds evictions back: EvictionPolicies, and the breakers in them.
type restraint struct {
	mode   configv1alpha1.EvictionMode
	store  *policies.Store
	labels *NamespaceLabels
	keeper *breaker.Keeper
	// runner is what is held back. It comes into being after what holds it.
	runner *evictor.Evictor
}

func (p *program) newRestraint(ctx context.Context, store *policies.Store, known *tracker.Tracker) (*restraint, error) {
	r := &restraint{mode: p.config.Eviction.Mode, store: store}
	var err error
	if r.labels, err = Watch(ctx, p.manager.GetCache(), r.changed); err != nil {
		return nil, err
	}
	r.keeper = breaker.New(breaker.Options{
		Reader: p.manager.GetAPIReader(), Status: p.manager.GetClient().Status(), Approvals: p.manager.GetClient(),
		Policies: r.policies, Live: known.Live,
		Held:     func() map[types.UID]int { return r.runner.HeldByPolicy() },
		Settled:  func() bool { return r.runner.Settled() },
		Standing: preview.NewView(preview.Options{Tracker: known}).FirstStanding,
		Released: func(policy types.UID) { r.runner.WakeHeld(policy) },
		Leads:    p.leads,
		Clock:    p.clock, Local: p.local, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: breaker.NewMetrics(ctrlmetrics.Registry),
	})
	return r, nil
}

// restrain has the evictor obey r.
func (r *restraint) restrain(options *evictor.Options) {
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

// policies returns the EvictionPolicies in force.
func (r *restraint) policies() *eviction.Set {
	current := r.store.Current()
	if current == nil {
		return nil
	}
	return current.Evictions
}

// foretold returns the policies that previews and limits go by. Where Kubernetes evicts
// as well, or alone, nobody is safe because a policy of Tollgate's says so.
func (r *restraint) foretold() *eviction.Set {
	if r.mode != configv1alpha1.EvictionReplace {
		return nil
	}
	return r.policies()
}

// changed has what is held in a namespace looked at again.
func (r *restraint) changed(namespace string) {
	if r.runner != nil {
		r.runner.NamespaceChanged(namespace)
	}
}

// follow tells of policies that change until ctx is done.
func (r *restraint) follow(ctx context.Context) {
	changed, stop := r.store.Subscribe()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			r.keeper.PoliciesChanged()
			r.runner.PoliciesChanged()
		}
	}
}

// addRestraint adds what follows the policies, and what the leader writes about them.
func (p *program) addRestraint(r *restraint) error {
	if !p.features.Enabled(settings.EvictionPolicies) {
		return nil
	}
	if err := p.manager.Add(everyReplica(r.follow)); err != nil {
		return fmt.Errorf("follow EvictionPolicies: %w", err)
	}
	status := status.NewHeld(status.HeldOptions{
		Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(), Policies: r.policies,
		Held: r.runner.Held, Settled: r.runner.Settled,
		Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
	})
	p.leading = append(p.leading, status.Start)
	if r.mode != configv1alpha1.EvictionObserve {
		p.leading = append(p.leading, r.keeper.Start)
	}
	return nil
}
