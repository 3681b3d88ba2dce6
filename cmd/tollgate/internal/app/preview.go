package app

import (
	"fmt"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
	"github.com/tollgate-dev/tollgate/webhook"
)

// foresight says what writes would do to pods. Where those are not followed it is zero.
type foresight struct {
	view    *preview.View
	limits  *preview.Limits
	preview *webhook.Preview
}

// addForesight adds what watches disruption budgets, and returns what says what a write
// would do to pods.
func (p *program) addForesight(known *followed, patched *PatchFeed) (*foresight, error) {
	if known.tracker == nil {
		return &foresight{}, nil
	}
	budgets, feed := informer.NewBudgets(p.clientset, informer.Guarded(known.guard)), informer.NewBudgetFeed(known.tracker)
	feed.OnBudget(known.restraint.runner.PodsChanged)
	if err := feed.Attach(budgets); err != nil {
		return nil, fmt.Errorf("watch disruption budgets: %w", err)
	}
	if err := p.manager.Add(everyReplica(budgets.RunWithContext)); err != nil {
		return nil, fmt.Errorf("watch disruption budgets: %w", err)
	}
	options := preview.Options{
		Tracker: known.tracker, Rules: known.rules, PodsKnown: known.pods, BudgetsKnown: feed.HasSynced,
		Policies: known.restraint.foretold, NamespaceLabels: known.restraint.labels.Of,
	}
	if known.nodes {
		options.NodesKnown = known.pods
	}
	if known.devices != nil {
		options.DevicesKnown = known.devices.counts
	}
	view := preview.NewView(options)
	judge := preview.NewLimits(preview.LimitsConfig{
		View: view, Ledger: known.ledger, Approvals: preview.NewApprovals(p.manager.GetClient()),
		Authorizer: p.operators, Clock: p.clock,
	})
	config := webhook.PreviewConfig{
		View: view, Limits: judge, Observe: p.config.Eviction.Mode == configv1alpha1.EvictionObserve,
		Off: p.offKinds(), Clock: p.clock, Metrics: webhook.NewPreviewMetrics(ctrlmetrics.Registry),
	}
	if patched != nil {
		config.Selection = patched
	}
	return &foresight{view: view, limits: judge, preview: webhook.NewPreview(config)}, nil
}

// offKinds returns the feature gates that are off for taints of devices which are not their
// drivers'.
func (p *program) offKinds() map[tracker.SourceKind]string {
	off := map[tracker.SourceKind]string{}
	if gate := settings.DeviceTaintRules; !p.features.Enabled(gate) {
		off[tracker.SourceRule], off[tracker.SourcePatch] = string(gate), string(gate)
	}
	if gate := settings.ResourceSlicePatches; !p.features.Enabled(gate) {
		off[tracker.SourcePatch] = string(gate)
	}
	return off
}
