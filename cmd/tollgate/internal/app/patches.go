package app

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/controllers/slicepatches"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// addPatchStatus adds the controller that writes the eviction status of patches, and a watch of
// patches on every replica. Written reports whether all rules of a patch are written.
func (p *program) addPatchStatus(state *evictionState, written func(patch *tracker.Rule) bool) {
	list := rulestatus.NewPatches(state.tracker, state.evictor.Forget)
	status := p.addRuleStatus(state, rulestatus.NewPatchMetrics(ctrlmetrics.Registry), rulestatus.Objects{
		Kind: rulestatus.KindPatch, Tracker: list, Applier: rulestatus.NewPatchApplier(p.dynamic), Written: written,
	})
	state.changes.evictingPatches.join(func(patches []string) { status.Add(patches...) })
	state.changes.rules.join(func(rule string) {
		patches := list.RuleChanged(rule)
		status.Add(patches...)
		state.changes.patches.notify(patches)
	})
	set := func(obj any) {
		patch := obj.(*v1alpha1.ResourceSlicePatch)
		list.SetPatch(patch)
		status.Add(patch.Name)
	}
	p.add(everyReplica(func(ctx context.Context) {
		controller.Watch(ctx, p.manager.GetCache(), &v1alpha1.ResourceSlicePatch{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) },
			DeleteFunc: controller.OnEvent(func(patch client.Object) {
				list.DeletePatch(patch.GetName(), patch.GetUID())
				status.Add(patch.GetName())
			}).OnDelete,
		}, p.local)
	}))
}

// addPatchFeed adds the feed of the devices of ResourceSlicePatches on every replica; nil when
// the feature is off.
func (p *program) addPatchFeed() *PatchFeed {
	if !p.features.Enabled(settings.ResourceSlicePatches) {
		return nil
	}
	view := sliceview.New()
	if !p.features.Enabled(settings.ResourceSlicePatchAttributes) {
		view.LeaveOutAttributes()
	}
	feed := NewPatchFeed(view, p.manager.GetCache(), p.local)
	p.add(feed)
	return feed
}

// addPatches adds the leader's controller that writes the rules and the status of
// ResourceSlicePatches.
func (p *program) addPatches(state *evictionState, feed *PatchFeed) {
	p.addRemover(state)
	if feed == nil {
		return
	}
	options := slicepatches.Options{
		View: feed.view, ViewSynced: feed.Synced, Live: p.manager.GetAPIReader(),
		Shared: p.config.Eviction.Mode != configv1alpha1.EvictionReplace, Metrics: slicepatches.NewMetrics(ctrlmetrics.Registry),
	}
	if !p.features.Enabled(settings.ResourceSlicePatchAttributes) {
		options.AttributesGate = string(settings.ResourceSlicePatchAttributes)
	}
	d := state.devices
	switch {
	case d == nil:
		options.Rules.Gate = string(settings.DeviceTaintEviction)
	case d.withoutRules:
		options.Rules.Gate = string(settings.DeviceTaintRules)
	default:
		options.Rules.Index, options.Rules.Synced = state.tracker, d.synced.Load
		options.Rules.Client = devicetaints.NewRuleClient(p.dynamic, d.served, v1alpha1.LabelPatch, v1alpha1.AnnotationPatchEffect)
	}
	controller := slicepatches.New(p.controllerBase(), options)
	p.whileLeading(controller.Start)
	if options.Rules.Client != nil {
		state.changes.rules.join(controller.RuleChanged)
		p.addPatchStatus(state, controller.Written)
	}
}

// addRemover adds the controller that deletes objects written for a feature whose gate is off
// now: they would go on tainting.
func (p *program) addRemover(state *evictionState) {
	remover := &slicepatches.Remover{Base: p.controllerBase(), Client: p.dynamic}
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
		p.whileLeading(remover.Start)
	}
}

// watchPause is the time between two attempts to watch: the kind may be defined later.
const watchPause = 5 * time.Second

// informers is the part of a cache that a PatchFeed uses.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// PatchFeed feeds a view from watches. It is safe for concurrent use.
type PatchFeed struct {
	view   *sliceview.View
	source informers
	clock  clock.Clock

	once   sync.Once
	needed chan struct{}

	// listed is done when the first list of patches is complete; nil before the watch.
	listed atomic.Pointer[toolscache.DoneChecker]
}

// NewPatchFeed returns a feed of an empty view. Start starts the watches.
func NewPatchFeed(view *sliceview.View, source informers, local clock.Clock) *PatchFeed {
	return &PatchFeed{view: view, source: source, clock: local, needed: make(chan struct{})}
}

// Want starts the watch of devices, as the first patch does. It does not block.
func (f *PatchFeed) Want() { f.once.Do(func() { close(f.needed) }) }

// Synced reports whether the view has all patches and, if there are any, their slices and
// classes.
func (f *PatchFeed) Synced() bool {
	select {
	case <-f.needed:
		return f.view.HasSynced()
	default:
	}
	listed := f.listed.Load()
	return listed != nil && toolscache.IsDone(*listed)
}

// Selected returns the devices that a patch would select; false while the view has not synced.
// The first call starts the watch of devices.
func (f *PatchFeed) Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, bool) {
	f.Want()
	if !f.view.HasSynced() {
		return nil, false
	}
	ids, err := f.view.Would(ctx, patch)
	return ids, err == nil
}

// NeedLeaderElection is false: every replica previews patches in admission.
func (f *PatchFeed) NeedLeaderElection() bool { return false }

// Start feeds the view until ctx is done.
func (f *PatchFeed) Start(ctx context.Context) error {
	f.retry(ctx, f.watchPatches)
	select {
	case <-ctx.Done():
		return nil
	case <-f.needed:
	}
	if !f.retry(ctx, f.attach) {
		return nil
	}
	return f.view.Run(ctx)
}

// retry calls attempt every watchPause until it succeeds, and logs the first error; false means
// that ctx is done.
func (f *PatchFeed) retry(ctx context.Context, attempt func(ctx context.Context) error) bool {
	for logged := false; ; logged = true {
		err := attempt(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		if !logged {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch yet what ResourceSlicePatches need")
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.clock.After(watchPause):
		}
	}
}

// watchPatches calls Want once there is a patch.
func (f *PatchFeed) watchPatches(ctx context.Context) error {
	patches, err := f.informer(ctx, &v1alpha1.ResourceSlicePatch{})
	if err != nil {
		return err
	}
	registration, err := patches.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { f.Want() }})
	if err != nil {
		return fmt.Errorf("watch ResourceSlicePatches: %w", err)
	}
	listed := registration.HasSyncedChecker()
	f.listed.Store(&listed)
	return nil
}

// attach connects the view to the informers of patches, classes and slices.
func (f *PatchFeed) attach(ctx context.Context) error {
	var found [3]cache.Informer
	for i, object := range []client.Object{&v1alpha1.ResourceSlicePatch{}, &resourcev1.DeviceClass{}, &resourcev1.ResourceSlice{}} {
		informer, err := f.informer(ctx, object)
		if err != nil {
			return err
		}
		found[i] = informer
	}
	if err := f.view.AttachPatches(found[0], found[1]); err != nil {
		return err
	}
	return f.view.Attach(found[2], nil)
}

func (f *PatchFeed) informer(ctx context.Context, object client.Object) (cache.Informer, error) {
	informer, err := f.source.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	return informer, nil
}
