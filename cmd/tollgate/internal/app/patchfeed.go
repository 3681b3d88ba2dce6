package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// watchPause is the time between two attempts to watch: the kind may be defined later.
const watchPause = 5 * time.Second

// informers is the part of a cache that a PatchFeed uses.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// timer is the part of a clock that a PatchFeed uses.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// PatchFeed feeds a view from watches. It is safe for concurrent use.
type PatchFeed struct {
	view   *sliceview.View
	source informers
	clock  timer

	once   sync.Once
	needed chan struct{}

	mu sync.Mutex
	// listed is done when the first list of patches is complete; nil before the watch.
	listed toolscache.DoneChecker
}

// NewPatchFeed returns a feed of an empty view. Start starts the watches.
func NewPatchFeed(view *sliceview.View, source informers, clock timer) *PatchFeed {
	return &PatchFeed{view: view, source: source, clock: clock, needed: make(chan struct{})}
}

// View returns the view.
func (f *PatchFeed) View() *sliceview.View { return f.view }

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
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed != nil && toolscache.IsDone(f.listed)
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = registration.HasSyncedChecker()
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
