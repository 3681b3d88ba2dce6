package policies

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func evicting(generation int64) []v1alpha1.EvictionPolicy {
	return []v1alpha1.EvictionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "uid-e", Generation: generation}}}
}

// quietly changes the world, and no watch says so.
func (w *world) quietly(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) blind(kind string) float64 {
	return testutil.ToFloat64(w.store.options.Metrics.blind.WithLabelValues(kind))
}

func TestI06APolicyThatItsWatchDoesNotBringIsInForceAfterTwoLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		holds := func(generation int64) bool { return w.store.Current().Holds("uid-e", generation) }
		w.change(func() { w.synced, w.evictions = true, evicting(1) })
		w.quietly(func() { w.storedEvictions = evicting(5) })
		time.Sleep(checkPause + time.Second)
		require.True(t, holds(1), "at one look it may be on its way")
		require.Zero(t, w.blind("EvictionPolicy"))
		time.Sleep(checkPause)
		require.True(t, holds(5))
		require.InDelta(t, 1, w.blind("EvictionPolicy"), 0)
		require.Zero(t, w.blind("TolerationPolicy"))

		w.change(func() { w.evictions = evicting(3) })
		require.True(t, holds(5), "a watch that catches up takes nothing back")
		w.quietly(func() { w.storedEvictions = evicting(6) })
		time.Sleep(checkPause + time.Second)
		require.True(t, holds(6), "a watch that is not believed is not waited for")
		require.InDelta(t, 1, w.blind("EvictionPolicy"), 0, "it is the same time")

		w.change(func() { w.evictions = evicting(6) })
		w.change(func() { w.evictions, w.storedEvictions = evicting(7), nil })
		require.True(t, holds(7))
		lists := w.listed()
		w.change(func() { w.evictions = evicting(8) })
		require.True(t, holds(8))
		require.Equal(t, len(w.store.options.Kinds), w.listed()-lists, "each kind is read once, from the watch")
	})
}

func TestI06AWatchThatIsOnlyLateIsBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		w.change(func() { w.synced, w.evictions = true, evicting(1) })
		for generation := int64(2); generation < 10; generation += 2 {
			w.quietly(func() { w.storedEvictions = evicting(generation) })
			time.Sleep(checkPause)
			w.change(func() { w.evictions = evicting(generation) })
			time.Sleep(checkPause)
		}
		require.Zero(t, w.blind("EvictionPolicy"))
		w.quietly(func() { require.Zero(t, w.whole, "the API server is asked for metadata alone") })
	})
}

func TestD05WhatABlindWatchHidesIsLostOnlyWhenPoliciesCanBeCreated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		holds := func(name string) bool { return w.store.Current().Holds(types.UID("uid-"+name), 1) }
		w.change(func() { w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a")} })
		w.quietly(func() {
			w.verbs = metav1.Verbs{"delete", "get", "list"}
			w.stored = []v1alpha1.TolerationPolicy{named("b")}
		})
		time.Sleep(2*checkPause + 2*time.Second)
		require.True(t, holds("b"))
		require.True(t, holds("a"), "its definition may be on its way out")
		require.InDelta(t, 1, w.stale(t), 0)
		w.quietly(func() { w.verbs = metav1.Verbs{"create", "list"} })
		time.Sleep(2 * time.Second)
		require.True(t, holds("b"))
		require.False(t, holds("a"))
		require.Zero(t, w.stale(t))
	})
}
