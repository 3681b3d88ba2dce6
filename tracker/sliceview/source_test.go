package sliceview_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// source is an informer that says what a test wants it to say, when it wants it
// said. All but what is written here is a real informer that never runs.
type source struct {
	toolscache.SharedIndexInformer
	synced chan struct{}

	mutex    sync.Mutex
	handlers []toolscache.ResourceEventHandler
	removed  int
}

func newSource(example runtime.Object) *source {
	return &source{
		SharedIndexInformer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, example, 0, toolscache.Indexers{}),
		synced:              make(chan struct{}),
	}
}

// registration is synced when its source is.
type registration struct{ *source }

func (r registration) HasSynced() bool                          { return toolscache.IsDone(r) }
func (r registration) HasSyncedChecker() toolscache.DoneChecker { return r }
func (r registration) Name() string                             { return "source" }
func (r registration) Done() <-chan struct{}                    { return r.synced }

func (s *source) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.handlers = append(s.handlers, handler)
	return registration{s}, nil
}

func (s *source) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

func (s *source) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.removed++
	return nil
}

// store writes an object where listers see it, and returns what tells the
// handlers of it.
func (s *source) store(tb testing.TB, obj metav1.Object) (tell func()) {
	tb.Helper()
	old, found, err := s.GetIndexer().GetByKey(obj.GetName())
	require.NoError(tb, err)
	require.NoError(tb, s.GetIndexer().Update(obj))
	return func() {
		for _, handler := range s.handlers {
			if found {
				handler.OnUpdate(old, obj)
			} else {
				handler.OnAdd(obj, !toolscache.IsDone(registration{s}))
			}
		}
	}
}

func (s *source) set(tb testing.TB, obj metav1.Object) {
	tb.Helper()
	s.store(tb, obj)()
}

// remove deletes an object, and says so with what the informer last knew, or with
// a tombstone that holds no more than the name.
func (s *source) remove(tb testing.TB, name string, tombstone bool) {
	tb.Helper()
	old, found, err := s.GetIndexer().GetByKey(name)
	require.NoError(tb, err)
	if !found {
		return
	}
	require.NoError(tb, s.GetIndexer().Delete(old))
	if tombstone {
		old = toolscache.DeletedFinalStateUnknown{Key: name}
	}
	for _, handler := range s.handlers {
		handler.OnDelete(old)
	}
}

// typedSlices is a source as Kubernetes' own tracker wants it.
type typedSlices struct{ *source }

func (s typedSlices) Informer() toolscache.SharedIndexInformer { return s.source }
func (s typedSlices) TypedInformer() resourceinformers.ResourceSliceIndexInformer {
	return resourceinformers.ToResourceSliceIndexInformer(s.source)
}

func (s typedSlices) Lister() resourcelisters.ResourceSliceLister {
	return resourcelisters.NewResourceSliceLister(s.GetIndexer())
}

// typedRules is a source as Kubernetes' own tracker wants it.
type typedRules struct{ *source }

func (s typedRules) Informer() toolscache.SharedIndexInformer { return s.source }
func (s typedRules) TypedInformer() resourceinformers.DeviceTaintRuleIndexInformer {
	return resourceinformers.ToDeviceTaintRuleIndexInformer(s.source)
}

func (s typedRules) Lister() resourcelisters.DeviceTaintRuleLister {
	return resourcelisters.NewDeviceTaintRuleLister(s.GetIndexer())
}

func newSliceSource() *source { return newSource(&resourcev1.ResourceSlice{}) }
func newRuleSource() *source  { return newSource(&resourcev1.DeviceTaintRule{}) }

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
