package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// watches hands out one prepared watch after the other.
type watches struct {
	versions chan string
	prepared chan *watch.FakeWatcher
}

func (w *watches) react(action clienttesting.Action) (bool, watch.Interface, error) {
	w.versions <- action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion
	return true, <-w.prepared, nil
}

func startObserver(t *testing.T) (*observer, *watches) {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
	})
	w := &watches{versions: make(chan string, 10), prepared: make(chan *watch.FakeWatcher, 10)}
	client.PrependWatchReactor("pods", w.react)
	o, err := observe(t.Context(), client)
	require.NoError(t, err)
	t.Cleanup(o.stop)
	return o, w
}

func sighted(name, version string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	change(pod)
	return pod
}

func running(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }

func marked(pod *corev1.Pod) {
	running(pod)
	pod.DeletionTimestamp = new(metav1.Now())
}

func TestTheObserverCountsEachPodOnceAndByGroup(t *testing.T) {
	o := newObserver(func() {})
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for i, event := range []struct {
		pod  *corev1.Pod
		gone bool
	}{
		{pod: sighted("leaves-1", "11", running)},
		{pod: sighted("leaves-1", "12", marked)},
		{pod: sighted("stays-1", "13", running)},
		// Nobody saw this one marked before it was gone.
		{pod: sighted("leaves-2", "14", running), gone: true},
		{pod: sighted("leaves-1", "15", marked)},
		{pod: sighted("leaves-1", "16", marked), gone: true},
		{pod: sighted("somebody-1", "17", marked)},
	} {
		o.see(event.pod, event.gone, noon.Add(time.Duration(i)*time.Second))
	}
	second := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for g, want := range map[group]struct{ running, marked, gone []time.Time }{
		leaves: {
			running: []time.Time{second(0), second(3)},
			marked:  []time.Time{second(1), second(3)},
			gone:    []time.Time{second(3), second(5)},
		},
		stays: {running: []time.Time{second(2)}},
	} {
		ctx := patience(t)
		got, err := o.waitRunning(ctx, g, len(want.running))
		require.NoError(t, err)
		require.Equal(t, want.running, got)
		got, err = o.waitMarked(ctx, g, len(want.marked))
		require.NoError(t, err)
		require.Equal(t, want.marked, got, "not when it was seen again")
		got, err = o.waitGone(ctx, g, len(want.gone))
		require.NoError(t, err)
		require.Equal(t, want.gone, got)
	}
	require.Empty(t, o.seen[canary].running)
}

// patience ends a test that would wait for ever.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestTheObserverGoesOnWhereAWatchEnded(t *testing.T) {
	o, w := startObserver(t)
	one, empty, two := watch.NewFake(), watch.NewFake(), watch.NewFake()
	empty.Stop()
	w.prepared <- one
	w.prepared <- empty
	w.prepared <- two
	require.Equal(t, "10", <-w.versions)
	one.Modify(sighted("leaves-1", "11", marked))
	one.Stop()
	require.Equal(t, "11", <-w.versions)
	require.Equal(t, "11", <-w.versions)
	two.Modify(sighted("leaves-2", "12", marked))
	_, err := o.waitMarked(patience(t), leaves, 2)
	require.NoError(t, err)
}

func TestTheObserverSaysWhyItIsBlind(t *testing.T) {
	t.Run("the API server reports an error", func(t *testing.T) {
		o, w := startObserver(t)
		events := watch.NewFake()
		w.prepared <- events
		events.Error(&metav1.Status{Message: "too old resource version"})
		_, err := o.waitMarked(patience(t), leaves, 1)
		require.ErrorContains(t, err, "too old resource version")
	})
	t.Run("watches end before they have shown anything", func(t *testing.T) {
		o, w := startObserver(t)
		for range emptyWatches {
			events := watch.NewFake()
			events.Stop()
			w.prepared <- events
		}
		_, err := o.waitMarked(patience(t), leaves, 1)
		require.ErrorContains(t, err, "without an event")
	})
	t.Run("a pod does not go in time", func(t *testing.T) {
		o, w := startObserver(t)
		w.prepared <- watch.NewFake()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := o.waitMarked(ctx, leaves, 1)
		require.ErrorContains(t, err, "0 so far")
	})
}
