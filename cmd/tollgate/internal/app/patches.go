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

// patchSide is what the evictor and the status of patches share. It is there before what
// knows patches is.
type patchSide struct {
	// list has the patches as the evictor counts them, and status says so.
	list   *rulestatus.Patches
	status *rulestatus.Controller
	// told are those who want to know of patches that have other rules.
	told []func(patches []string)
}

// changed tells of patches for which other pods have to leave, or left.
func (s *patchSide) changed(names []string) {
	if s.status != nil {
		s.status.RulesChanged(names)
	}
}

// ruleChanged tells of the patches that a rule is or was written out for.
func (s *patchSide) ruleChanged(name string) {
	names := s.list.RuleChanged(name)
	s.changed(names)
	for _, tell := range s.told {
		tell(names)
	}
}

// follow keeps the list as patches are watched, on every replica.
func (s *patchSide) follow(ctx context.Context, p *program) {
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

// addPatchStatus adds what says in the status of patches how far their eviction is.
func (p *program) addPatchStatus(known *followed, client dynamic.Interface, written func(name string, uid types.UID, generation int64) bool) error {
	s := known.devices.patches
	options := known.devices.counting
	options.Kind, options.Tracker, options.Applier = rulestatus.KindPatch, s.list, rulestatus.NewPatchApplier(client)
	options.Written = func(patch *tracker.Rule) bool { return written(patch.Name, patch.UID, patch.Generation) }
	options.Metrics = rulestatus.NewPatchMetrics(ctrlmetrics.Registry)
	options.HeldOnly = false // Nobody but Tollgate says it of patches.
	status, err := rulestatus.New(options)
	if err != nil {
		return fmt.Errorf("write the status of ResourceSlicePatches: %w", err)
	}
	s.status = status
	known.devices.changed.join(s.ruleChanged)
	if err := p.manager.Add(everyReplica(func(ctx context.Context) { s.follow(ctx, p) })); err != nil {
		return fmt.Errorf("watch ResourceSlicePatches: %w", err)
	}
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.leading = append(p.leading, status.Start)
	}
	return nil
}

// addPatchFeed adds what knows the devices of ResourceSlicePatches on every replica, and
// returns it, nil where patches are not carried out.
func (p *program) addPatchFeed() (*PatchFeed, error) {
	if !p.features.Enabled(settings.ResourceSlicePatches) {
		return nil, nil //nolint:nilnil // There is none, and no fault.
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

// addPatches adds what writes the rules for the taints of ResourceSlicePatches and their
// status, on the leader.
func (p *program) addPatches(known *followed, feed *PatchFeed) error {
	client := p.dynamic
	p.addRemover(known, client)
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
	d := known.devices
	switch {
	case d == nil:
		options.RulesGate = string(settings.DeviceTaintEviction)
	case d.withoutRules:
		options.RulesGate = string(settings.DeviceTaintRules)
	default:
		options.Known, options.KnownSynced = known.tracker, d.known.Load
		options.Rules = controllers.NewRuleClient(client, d.served, v1alpha1.LabelPatch, v1alpha1.AnnotationPatchEffect)
	}
	controller := slicepatches.New(options)
	p.leading = append(p.leading, controller.Start)
	if options.Rules == nil {
		return nil
	}
	d.changed.join(controller.RuleChanged)
	return p.addPatchStatus(known, client, controller.Written)
}

// addRemover adds what takes away what was written for a feature before its gate was switched
// off: it would go on tainting.
func (p *program) addRemover(known *followed, client dynamic.Interface) {
	remover := &slicepatches.Remover{
		Client: client, Status: slicepatches.NewApplier(client), Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
	}
	carriedOut := p.features.Enabled(settings.ResourceSlicePatches)
	if !carriedOut {
		remover.Gate = string(settings.ResourceSlicePatches)
	}
	if !carriedOut || !known.followsRules() {
		remover.Rules = append(remover.Rules, slicepatches.OfPatches())
	}
	if !p.pairs(known) {
		remover.Rules = append(remover.Rules, slicepatches.Written{Label: devicetaints.Label, Ours: func(rule *resourcev1.DeviceTaintRule) bool {
			_, ours := devicetaints.OwnerOf(rule)
			return ours
		}})
	}
	if len(remover.Rules) > 0 {
		p.leading = append(p.leading, remover.Start)
	}
}
