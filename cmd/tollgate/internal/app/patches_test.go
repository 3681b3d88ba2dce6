package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

var errNoKind = errors.New("no matches for kind ResourceSlicePatch")

// patchSource is a cache with an informer for each kind.
type patchSource struct {
	patches, classes, slices *viewInformer

	mu sync.Mutex
	// missing is the error while the kind of patches is not defined.
	missing error
	asked   []string
}

func newSource(published ...any) *patchSource {
	return &patchSource{patches: &viewInformer{}, classes: &viewInformer{}, slices: &viewInformer{objects: published}}
}

// GetInformer implements informers.
func (s *patchSource) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf("%T", obj))
	if s.missing != nil {
		return nil, s.missing
	}
	switch obj.(type) {
	case *v1alpha1.ResourceSlicePatch:
		return s.patches, nil
	case *resourcev1.DeviceClass:
		return s.classes, nil
	default:
		return s.slices, nil
	}
}

// viewInformer has objects and calls handlers with them at once.
type viewInformer struct {
	cache.Informer

	mu       sync.Mutex
	objects  []any
	handlers []toolscache.ResourceEventHandler
}

// AddEventHandler implements cache.Informer.
func (i *viewInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, handler)
	for _, object := range i.objects {
		handler.OnAdd(object, true)
	}
	return syncedHandler{}, nil
}

// RemoveEventHandler implements cache.Informer.
func (i *viewInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

func (i *viewInformer) add(object any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.objects = append(i.objects, object)
	for _, handler := range i.handlers {
		handler.OnAdd(object, false)
	}
}

// syncedHandler is the registration of a handler that has synced.
type syncedHandler struct{}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (syncedHandler) HasSynced() bool                          { return true }
func (syncedHandler) HasSyncedChecker() toolscache.DoneChecker { return syncedHandler{} }
func (syncedHandler) Name() string                             { return "told" }
func (syncedHandler) Done() <-chan struct{}                    { return closed }

func (s *patchSource) watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *patchSource) define(missing error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

// feed runs a feed from a source until the test ends.
func feed(t *testing.T, from *patchSource) *PatchFeed {
	t.Helper()
	f := NewPatchFeed(sliceview.New(), from, clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	synctest.Wait()
	return f
}

var everything = &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: "p"}}

func published() *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "one"}, Devices: []resourcev1.Device{{Name: "a"}},
		},
	}
}

func TestSlicesAreNotWatchedBeforeThereIsAPatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newSource(published())
		f := feed(t, from)
		require.Equal(t, []string{"*v1alpha1.ResourceSlicePatch"}, from.watched())
		require.True(t, f.Synced(), "it is known that there is none")

		from.patches.add(everything)
		synctest.Wait()
		require.Equal(t, []string{"*v1alpha1.ResourceSlicePatch", "*v1.DeviceClass", "*v1.ResourceSlice"}, from.watched())
		require.True(t, f.Synced())
		report, ok := f.view.Report("p", 8)
		require.True(t, ok)
		require.Equal(t, 1, report.Matched)
	})
}

func TestWhoAsksForDevicesHasThemWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newSource(published())
		f := feed(t, from)
		from.mu.Lock() // Until then nothing can be watched.
		_, ok := f.Selected(t.Context(), everything)
		from.mu.Unlock()
		require.False(t, ok, "it is not known yet")
		synctest.Wait()
		ids, ok := f.Selected(t.Context(), everything)
		require.True(t, ok)
		require.Equal(t, []device.ID{{Driver: "gpu.example.com", Pool: "one", Name: "a"}}, ids)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok = f.Selected(ctx, everything)
		require.False(t, ok, "there is no time to find out")
	})
}

func TestTheKindMayBeDefinedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newSource()
		from.patches.objects = []any{everything}
		from.define(errNoKind)
		f := feed(t, from)
		time.Sleep(3 * watchPause)
		require.False(t, f.Synced(), "there may be patches")

		from.define(nil)
		time.Sleep(watchPause)
		synctest.Wait()
		require.True(t, f.Synced())
		_, ok := f.view.Report("p", 8)
		require.True(t, ok)
	})
}

func TestItEndsWhateverItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newSource()
		from.define(errNoKind)
		feed(t, from)
	})
	synctest.Test(t, func(t *testing.T) {
		from := newSource()
		f := feed(t, from)
		from.define(errNoKind)
		f.Want()
		synctest.Wait()
	})
}
