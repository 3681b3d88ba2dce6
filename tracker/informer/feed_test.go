package informer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// source hands out the handler that was added to it.
type source struct {
	toolscache.ResourceEventHandler

	err    error
	synced bool
}

func (s *source) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	s.ResourceEventHandler = handler
	return registration{source: s}, s.err
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration

	source *source
}

func (r registration) HasSynced() bool { return r.source.synced }

// listener remembers what it was told.
type listener struct {
	mu    sync.Mutex
	pods  []string
	nodes []string
	rules []string
}

func (l *listener) PodsChanged(keys []tracker.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		l.pods = append(l.pods, key.String()+"/"+string(key.UID))
	}
}

func (l *listener) NodeChanged(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = append(l.nodes, name)
}

func (l *listener) RuleChanged(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, name)
}

type world struct {
	tracker  *tracker.Tracker
	listener *listener
	nodes    *source
	pods     *source
	feed     *informer.Feed
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{tracker: tracker.New(), listener: &listener{}, nodes: &source{}, pods: &source{}}
	w.feed = informer.NewFeed(w.tracker, w.listener, clocktesting.NewFakePassiveClock(start))
	require.False(t, w.feed.HasSynced())
	require.NoError(t, w.feed.Attach(w.nodes, w.pods))
	return w
}

func node(version string, keys ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid", ResourceVersion: version}}
	for _, key := range keys {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func pod(uid, version string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: version},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()

	t.Run("I11 it has synced when both handlers have seen their lists", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.False(t, w.feed.HasSynced())
		w.nodes.synced = true
		require.False(t, w.feed.HasSynced())
		w.pods.synced = true
		require.True(t, w.feed.HasSynced())
	})

	t.Run("an informer that takes no handler is an error", func(t *testing.T) {
		t.Parallel()
		feed := informer.NewFeed(tracker.New(), &listener{}, clocktesting.NewFakePassiveClock(start))
		require.ErrorContains(t, feed.Attach(&source{err: errors.New("stopped")}, &source{}), "add node event handler: stopped")
		require.ErrorContains(t, feed.Attach(&source{synced: true}, &source{err: errors.New("stopped")}), "add pod event handler: stopped")
		require.False(t, feed.HasSynced())
	})

	t.Run("events of nodes and pods reach the tracker and the listener", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.pods.OnAdd(pod("1", "1"), true)
		w.nodes.OnAdd(node("2"), true)
		require.Empty(t, w.listener.pods)
		w.nodes.OnUpdate(node("2"), node("3", "gpu"))
		require.Equal(t, []string{"ns/p/1"}, w.listener.pods)
		require.Equal(t, []string{"n", "n"}, w.listener.nodes)
		w.pods.OnUpdate(pod("1", "1"), pod("1", "4"))
		require.Len(t, w.listener.pods, 1)
		w.pods.OnDelete(pod("1", "5"))
		require.Len(t, w.listener.pods, 2)
		require.Empty(t, w.tracker.PodsOn("n"))
		w.nodes.OnDelete(node("6"))
		require.Empty(t, w.tracker.Tainted())
		require.Len(t, w.listener.nodes, 3)
	})

	t.Run("I09 tombstones count as deletions, whatever else they hold is let be", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.nodes.OnAdd(node("1", "gpu"), true)
		w.pods.OnAdd(pod("1", "2"), true)
		w.pods.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/p", Obj: node("1")})
		w.pods.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/p"})
		w.pods.OnDelete(node("1"))
		w.pods.OnAdd(node("1"), false)
		w.pods.OnUpdate(pod("1", "2"), node("1"))
		w.nodes.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "n", Obj: pod("1", "1")})
		w.nodes.OnAdd(pod("1", "1"), false)
		w.nodes.OnUpdate(node("1"), pod("1", "1"))
		require.Len(t, w.tracker.PodsOn("n"), 1)
		require.Equal(t, []string{"n"}, w.tracker.Tainted())
		w.pods.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/p", Obj: pod("1", "2")})
		w.nodes.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "n", Obj: node("1")})
		require.Empty(t, w.tracker.PodsOn("n"))
		require.Empty(t, w.tracker.Tainted())
	})

	t.Run("NE-16 a pod that was replaced while the watch was away is a deletion and a new pod", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.nodes.OnAdd(node("1", "gpu"), true)
		w.pods.OnAdd(pod("1", "2"), true)
		w.pods.OnUpdate(pod("1", "2"), pod("2", "3"))
		require.Equal(t, []string{"ns/p/1", "ns/p/1", "ns/p/2"}, w.listener.pods)
		require.Equal(t, []tracker.Key{{Namespace: "ns", Name: "p", UID: "2"}}, w.tracker.PodsOn("n"))
	})

	t.Run("a node that was replaced while the watch was away starts anew", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.nodes.OnAdd(node("1", "gpu"), true)
		again := node("2", "gpu")
		again.UID = "another"
		w.nodes.OnUpdate(node("1", "gpu"), again)
		uid, taints := w.tracker.Taints("n")
		require.Equal(t, again.UID, uid)
		require.False(t, taints[0].Witnessed)
	})
}

func TestFeedOnClientGoInformers(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(node("1", "gpu"), pod("1", "1"))
	nodes, pods := informer.NewNodes(client), informer.NewPods(client)
	tr := tracker.New()
	feed := informer.NewFeed(tr, &listener{}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, feed.Attach(nodes, pods))
	run(t, nodes.RunWithContext)
	run(t, pods.RunWithContext)
	require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), feed.HasSynced))
	situation, ok := tr.Lookup(tracker.Key{Namespace: "ns", Name: "p", UID: "1"})
	require.True(t, ok)
	require.Equal(t, "n", situation.Pod.NodeName)
	require.Len(t, situation.Taints, 1)
}

func TestAFeedWithoutNodesHasSyncedWithThePods(t *testing.T) {
	t.Parallel()
	pods := &source{}
	feed := informer.NewFeed(tracker.New(), &listener{}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, feed.Attach(nil, pods))
	require.False(t, feed.HasSynced())
	pods.synced = true
	require.True(t, feed.HasSynced())
}

// run runs what runs until its context is done for as long as a test.
func run(t *testing.T, work func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { work(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// TestAListOfARestoredAPIServerIsTaken has an informer list anew from storage that was restored
// from a backup.
func TestAListOfARestoredAPIServerIsTaken(t *testing.T) {
	t.Parallel()
	known, nodes, pods := tracker.New(), &source{}, &source{}
	require.NoError(t, informer.NewFeed(known, &listener{}, clocktesting.NewFakePassiveClock(start)).Attach(nodes, pods))
	version := func(version string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid", ResourceVersion: version}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute}
	nodes.OnAdd(version("100"), true)
	nodes.OnUpdate(version("100"), version("200", gpu))
	require.Equal(t, []string{"n"}, known.Tainted())
	nodes.OnUpdate(version("200", gpu), version("150"))
	require.Empty(t, known.Tainted())
	nodes.OnUpdate(version("150"), version("151", gpu))
	require.Equal(t, []string{"n"}, known.Tainted())
}
