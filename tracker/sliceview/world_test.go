package sliceview_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// world is a view that runs, with the informers that feed it.
type world struct {
	tb            testing.TB
	slices, rules *source
	view          *sliceview.View
}

// newWorld returns a view whose informers have not synced. It is for use in a
// synctest bubble.
func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{tb: tb, slices: newSliceSource(), rules: newRuleSource(), view: sliceview.New()}
	require.NoError(tb, w.view.Attach(w.slices, w.rules))
	w.run(tb.Context())
	return w
}

func (w *world) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.view.Run(ctx) }()
	w.tb.Cleanup(func() {
		cancel()
		require.NoError(w.tb, <-ended)
	})
}

// synced ends the first lists of the informers, and waits until the view has seen
// it.
func (w *world) synced() *world {
	close(w.slices.synced)
	close(w.rules.synced)
	synctest.Wait()
	return w
}

// subscribe adds a recorder.
func (w *world) subscribe() *recorder {
	w.tb.Helper()
	r := &recorder{held: map[string]*resourcev1.ResourceSlice{}}
	registration, err := w.view.AddEventHandler(r)
	require.NoError(w.tb, err)
	r.synced = registration.HasSynced
	return r
}

// lists requires the view to show just these slices.
func (w *world) lists(expected map[string][]string) {
	w.tb.Helper()
	all, err := w.view.Lister().List(labels.Everything())
	require.NoError(w.tb, err)
	require.Equal(w.tb, expected, contents(all))
}

// recorder is a handler that writes down what it is told, and checks that it makes
// sense: nothing comes twice, goes unknown, or changes from what it never was.
type recorder struct {
	synced func() bool

	mutex    sync.Mutex
	held     map[string]*resourcev1.ResourceSlice
	events   []string
	problems []string
}

func (r *recorder) OnAdd(obj any, initial bool) {
	s := obj.(*resourcev1.ResourceSlice)
	kind := "add"
	if initial {
		kind = "initial"
	}
	r.note(kind, s, nil, s)
}

func (r *recorder) OnUpdate(oldObj, obj any) {
	s := obj.(*resourcev1.ResourceSlice)
	r.note("update", s, oldObj.(*resourcev1.ResourceSlice), s)
}

func (r *recorder) OnDelete(obj any) {
	s := obj.(*resourcev1.ResourceSlice)
	r.note("delete", s, s, nil)
}

func (r *recorder) note(kind string, s, old, next *resourcev1.ResourceSlice) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.events = append(r.events, fmt.Sprint(kind, " ", s.Name, " ", described(s)))
	if r.held[s.Name] != old {
		r.problems = append(r.problems, fmt.Sprintf("%s %s does not follow from what came before", kind, s.Name))
	}
	if next == nil {
		delete(r.held, s.Name)
	} else {
		r.held[s.Name] = next
	}
}

// told returns the events since it was last asked, once all are delivered.
func (r *recorder) told() []string {
	synctest.Wait()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	events := r.events
	r.events = nil
	return events
}

// agrees requires the recorder to hold just what the view lists.
func (r *recorder) agrees(w *world) {
	w.tb.Helper()
	synctest.Wait()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	require.Empty(w.tb, r.problems)
	held := map[string][]string{}
	for name, s := range r.held {
		held[name] = described(s)
	}
	require.Equal(w.tb, contents(w.view.List()), held)
}
