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

// watchPause is between two attempts to watch: the kind may be defined later.
const watchPause = 5 * time.Second

// informers is what is used of a cache.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// timer is what is used of a clock.
type timer interface {
	After(d time.Duration) <-chan time.Time
}

// PatchFeed keeps a view. It is goroutine-safe.
type PatchFeed struct {
	view  *sliceview.View
	from  informers
	clock timer

	once   sync.Once
	wanted chan struct{}

	mu sync.Mutex
	// listed is done when all patches have been listed; nil before they are watched.
	listed toolscache.DoneChecker
}

// NewPatchFeed returns a feed of an empty view. It starts nothing: that is what Start does.
func NewPatchFeed(view *sliceview.View, from informers, clock timer) *PatchFeed {
	return &PatchFeed{view: view, from: from, clock: clock, wanted: make(chan struct{})}
}

// View returns the view.
func (f *PatchFeed) View() *sliceview.View { return f.view }

// Want has devices be watched from now on, as if there was a patch. It does not block.
func (f *PatchFeed) Want() { f.once.Do(func() { close(f.wanted) }) }

// Synced reports whether the view knows all patches, and where there are any, all that
// they are about.
func (f *PatchFeed) Synced() bool {
	select {
	case <-f.wanted:
		return f.view.HasSynced()
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed != nil && toolscache.IsDone(f.listed)
}

// Selected returns the devices that a patch would be meant for if it was written; false
// while that is not known. The first who asks has it found out.
func (f *PatchFeed) Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, bool) {
	f.Want()
	if !f.view.HasSynced() {
		return nil, false
	}
	ids, err := f.view.Would(ctx, patch)
	return ids, err == nil
}

// NeedLeaderElection is false: every replica tells who writes a patch what it does.
func (f *PatchFeed) NeedLeaderElection() bool { return false }

// Start feeds the view until ctx is done.
func (f *PatchFeed) Start(ctx context.Context) error {
	f.try(ctx, f.look)
	select {
	case <-ctx.Done():
		return nil
	case <-f.wanted:
	}
	if !f.try(ctx, f.attach) {
		return nil
	}
	return f.view.Run(ctx)
}

// try tries until there is no error, and logs the first; false means that ctx ended.
func (f *PatchFeed) try(ctx context.Context, attempt func(ctx context.Context) error) bool {
	for told := false; ; told = true {
		err := attempt(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		if !told {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot watch yet what ResourceSlicePatches need")
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.clock.After(watchPause):
		}
	}
}

// look watches whether there are patches.
func (f *PatchFeed) look(ctx context.Context) error {
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

// attach connects the view to what it is fed by, all of it or nothing.
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
	informer, err := f.from.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	return informer, nil
}
