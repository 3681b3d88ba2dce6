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

// previewSet computes what writes would do to pods. It is zero when eviction is off.
type previewSet struct {
	view    *preview.View
	limits  *preview.Limits
	preview *webhook.Preview
}

// addPreviews adds the watch of disruption budgets, and returns the previews.
func (p *program) addPreviews(state *evictionState, patches *PatchFeed) (*previewSet, error) {
	if state.tracker == nil {
		return &previewSet{}, nil
	}
	budgets, feed := informer.NewBudgets(p.clientset, informer.Guarded(state.guard)), informer.NewBudgetFeed(state.tracker)
	feed.OnBudget(state.breakers.runner.PodsChanged)
	if err := feed.Attach(budgets); err != nil {
		return nil, fmt.Errorf("watch disruption budgets: %w", err)
	}
	if err := p.manager.Add(everyReplica(budgets.RunWithContext)); err != nil {
		return nil, fmt.Errorf("watch disruption budgets: %w", err)
	}
	options := preview.Options{
		Tracker: state.tracker, Rules: state.rules, PodsKnown: state.pods, BudgetsKnown: feed.HasSynced,
		Policies: state.breakers.previewPolicies, NamespaceLabels: state.breakers.labels.Of,
	}
	if state.nodes {
		options.NodesKnown = state.pods
	}
	if state.devices != nil {
		options.DevicesKnown = state.devices.claimsSynced
	}
	view := preview.NewView(options)
	judge := preview.NewLimits(preview.LimitsConfig{
		View: view, Ledger: state.ledger, Approvals: preview.NewApprovals(p.manager.GetClient()),
		Authorizer: p.operators, Clock: p.clock,
	})
	config := webhook.PreviewConfig{
		View: view, Limits: judge, Observe: p.config.Eviction.Mode == configv1alpha1.EvictionObserve,
		Off: p.offKinds(), Clock: p.clock, Metrics: webhook.NewPreviewMetrics(ctrlmetrics.Registry),
	}
	if patches != nil {
		config.Selection = patches
	}
	return &previewSet{view: view, limits: judge, preview: webhook.NewPreview(config)}, nil
}

// offKinds returns, by source of a device taint, the feature gate that is off.
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
