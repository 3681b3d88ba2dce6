package app

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/controllers/slicepatches"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// patchStatus is the state that the evictor and the status controller of patches share. It exists
// before the patches are watched.
type patchStatus struct {
	// list holds the patches that the evictor counts; status writes their status, nil until it is
	// added.
	list   *rulestatus.Patches
	status *rulestatus.Controller
	// handlers are called with patches whose rules changed.
	handlers []func(patches []string)
}

// changed queues patches for which pods have to leave, or left.
func (s *patchStatus) changed(names []string) {
	if s.status != nil {
		s.status.RulesChanged(names)
	}
}

// ruleChanged queues the patches that a rule is or was generated for, and calls the handlers.
func (s *patchStatus) ruleChanged(name string) {
	names := s.list.RuleChanged(name)
	s.changed(names)
	for _, tell := range s.handlers {
		tell(names)
	}
}

// watch updates the list from a watch of patches, on every replica, until ctx is done.
func (s *patchStatus) watch(ctx context.Context, p *program) {
	set := func(obj any) {
		if patch, ok := obj.(*v1alpha1.ResourceSlicePatch); ok {
			s.list.SetPatch(patch)
			s.changed([]string{patch.Name})
		}
	}
	controllers.Watch(ctx, p.manager.GetCache(), &v1alpha1.ResourceSlicePatch{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if patch, ok := obj.(*v1alpha1.ResourceSlicePatch); ok {
				s.list.DeletePatch(patch.Name, patch.UID)
				s.changed([]string{patch.Name})
			}
		},
	}, p.local)
}

// addPatchStatus adds the controller that writes the eviction status of patches.
func (p *program) addPatchStatus(state *evictionState, client dynamic.Interface, written func(name string, uid types.UID, generation int64) bool) error {
	s := state.devices.patches
	options := state.devices.statusOptions
	options.Kind, options.Tracker, options.Applier = rulestatus.KindPatch, s.list, rulestatus.NewPatchApplier(client)
	options.Written = func(patch *tracker.Rule) bool { return written(patch.Name, patch.UID, patch.Generation) }
	options.Metrics = rulestatus.NewPatchMetrics(ctrlmetrics.Registry)
	options.HeldOnly = false // No other controller writes this condition of patches.
	status, err := rulestatus.New(options)
	if err != nil {
		return fmt.Errorf("write the status of ResourceSlicePatches: %w", err)
	}
	s.status = status
	state.devices.ruleListeners.join(s.ruleChanged)
	if err := p.manager.Add(everyReplica(func(ctx context.Context) { s.watch(ctx, p) })); err != nil {
		return fmt.Errorf("watch ResourceSlicePatches: %w", err)
	}
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.leaderTasks = append(p.leaderTasks, status.Start)
	}
	return nil
}

// addPatchFeed adds the feed of the devices of ResourceSlicePatches on every replica; nil when
// the feature is off.
func (p *program) addPatchFeed() (*PatchFeed, error) {
	if !p.features.Enabled(settings.ResourceSlicePatches) {
		return nil, nil //nolint:nilnil // Nil without an error means off.
	}
	view := sliceview.New()
	if !p.features.Enabled(settings.ResourceSlicePatchAttributes) {
		view.LeaveOutAttributes()
	}
	feed := NewPatchFeed(view, p.manager.GetCache(), p.local)
	if err := p.manager.Add(feed); err != nil {
		return nil, fmt.Errorf("watch ResourceSlicePatches: %w", err)
	}
	return feed, nil
}

// addPatches adds the leader's controller that writes the rules and the status of
// ResourceSlicePatches.
func (p *program) addPatches(state *evictionState, feed *PatchFeed) error {
	client := p.dynamic
	p.addRemover(state, client)
	if feed == nil {
		return nil
	}
	options := slicepatches.Options{
		View: feed.View(), ViewSynced: feed.Synced,
		Cache: p.manager.GetCache(), Reader: p.manager.GetClient(), Live: p.manager.GetAPIReader(), Status: slicepatches.NewApplier(client),
		Shared: p.config.Eviction.Mode != configv1alpha1.EvictionReplace,
		Clock:  p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: slicepatches.NewMetrics(ctrlmetrics.Registry),
	}
	if !p.features.Enabled(settings.ResourceSlicePatchAttributes) {
		options.AttributesGate = string(settings.ResourceSlicePatchAttributes)
	}
	d := state.devices
	switch {
	case d == nil:
		options.RulesGate = string(settings.DeviceTaintEviction)
	case d.withoutRules:
		options.RulesGate = string(settings.DeviceTaintRules)
	default:
		options.Known, options.KnownSynced = state.tracker, d.synced.Load
		options.Rules = controllers.NewRuleClient(client, d.served, v1alpha1.LabelPatch, v1alpha1.AnnotationPatchEffect)
	}
	controller := slicepatches.New(options)
	p.leaderTasks = append(p.leaderTasks, controller.Start)
	if options.Rules == nil {
		return nil
	}
	d.ruleListeners.join(controller.RuleChanged)
	return p.addPatchStatus(state, client, controller.Written)
}

// addRemover adds the controller that deletes objects written for a feature whose gate is off
// now: they would go on tainting.
func (p *program) addRemover(state *evictionState, client dynamic.Interface) {
	remover := &slicepatches.Remover{
		Client: client, Status: slicepatches.NewApplier(client), Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
	}
	carriedOut := p.features.Enabled(settings.ResourceSlicePatches)
	if !carriedOut {
		remover.Gate = string(settings.ResourceSlicePatches)
	}
	if !carriedOut || !state.watchesRules() {
		remover.Rules = append(remover.Rules, slicepatches.OfPatches())
	}
	if !p.pairs(state) {
		remover.Rules = append(remover.Rules, slicepatches.Written{Label: devicetaints.Label, Ours: func(rule *resourcev1.DeviceTaintRule) bool {
			_, ours := devicetaints.OwnerOf(rule)
			return ours
		}})
	}
	if len(remover.Rules) > 0 {
		p.leaderTasks = append(p.leaderTasks, remover.Start)
	}
}
