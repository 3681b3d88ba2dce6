package informer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// listAnswer answers a list.
type listAnswer func(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error)

// fakeAPI answers lists by a script, of which the last answer is repeated, and watches
// with streams that the test writes to.
type fakeAPI struct {
	// streams is true where the API server sends what there is in a stream.
	streams bool
	// begin, if given, is called before a watch is answered.
	begin func(ctx context.Context) error

	mu      sync.Mutex
	answers []listAnswer
	lists   []metav1.ListOptions
	watches []metav1.ListOptions
	open    []*watch.FakeWatcher
}

func (f *fakeAPI) IsWatchListSemanticsUnSupported() bool { return !f.streams }

func (f *fakeAPI) List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	f.mu.Lock()
	answer := f.answers[min(len(f.lists), len(f.answers)-1)]
	f.lists = append(f.lists, options)
	f.mu.Unlock()
	return answer(ctx, options)
}

func (f *fakeAPI) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	f.watches = append(f.watches, options)
	f.mu.Unlock()
	if f.begin != nil {
		if err := f.begin(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stream := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1000})
	f.open = append(f.open, stream)
	return stream, nil
}

// asked returns how many lists and watches there were.
func (f *fakeAPI) asked() (lists, watches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lists), len(f.watches)
}

// stream returns the stream of the watch that was begun last.
func (f *fakeAPI) stream() *watch.FakeWatcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[len(f.open)-1]
}

// nodes answers with nodes of those numbers as of a version.
func nodes(version int, numbers ...int) listAnswer {
	return page(version, "", numbers...)
}

// page is an answer after which there are more.
func page(version int, next string, numbers ...int) listAnswer {
	return func(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
		list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version), Continue: next}}
		for _, i := range numbers {
			list.Items = append(list.Items, *numbered(i))
		}
		return list, nil
	}
}

func fails(err error) listAnswer {
	return func(context.Context, metav1.ListOptions) (*corev1.NodeList, error) { return nil, err }
}

// hangs answers when the client gives up.
func hangs(ctx context.Context, _ metav1.ListOptions) (*corev1.NodeList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func numbered(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(i)}}
}

func bookmark(version int, end bool) *corev1.Node {
	b := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}
	if end {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return b
}

func expired() *metav1.Status { return new(apierrors.NewResourceExpired("too old").Status()) }

// watched is an informer of nodes under a guard, and what it asks.
type watched struct {
	*fakeAPI

	informer toolscache.SharedIndexInformer
	metrics  *Metrics
	registry *prometheus.Registry
	stop     func()
}

// follow runs an informer in a bubble.
func follow(t *testing.T, api *fakeAPI) *watched {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	w := &watched{fakeAPI: api, metrics: NewMetrics(registry), registry: registry}
	guard := NewGuard(GuardOptions{Clock: clock.RealClock{}, Metrics: w.metrics})
	from := objects("nodes", api, api, ignore, []Option{Guarded(guard)})
	w.informer = newShared(from, runtime.Object(&corev1.Node{}), keepNodes())
	// The usual handler paces what it logs by a clock of the whole process, which is years
	// ahead of that of a bubble.
	require.NoError(t, w.informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.informer.RunWithContext(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	synctest.Wait()
	return w
}

// known returns how many nodes the informer knows.
func (w *watched) known() int { return len(w.informer.GetStore().ListKeys()) }

func (w *watched) requireAsked(t *testing.T, lists, watches int) {
	t.Helper()
	gotLists, gotWatches := w.asked()
	require.Equal(t, [2]int{lists, watches}, [2]int{gotLists, gotWatches}, "lists and watches")
}
