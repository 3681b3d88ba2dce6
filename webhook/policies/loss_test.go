package policies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestD05WhatIsNewDoesNotWaitForWhatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		t.Helper()
		holds := func(name string, generation int64) bool {
			return w.store.Current().Holds(types.UID("uid-"+name), generation)
		}
		w.change(func() {
			w.synced, w.tolerations = true, []v1alpha1.TolerationPolicy{named("a"), named("b"), named("c")}
		})
		w.tell(func() {
			w.verbs = metav1.Verbs{"delete", "get", "list"} // no loss can be confirmed
			tighter, again := named("b"), named("c")
			tighter.Generation, again.UID = 2, "uid-again"
			w.tolerations = []v1alpha1.TolerationPolicy{tighter, again, named("d")}
		})
		time.Sleep(settle + lossPause/2) // too soon to know anything about the loss
		require.True(t, holds("d", 1), "one that is new")
		require.True(t, holds("b", 2), "a later generation")
		require.False(t, holds("b", 1))
		require.True(t, holds("again", 1), "another one of the same name")
		require.False(t, holds("c", 1), "it has been replaced, not lost")
		require.True(t, holds("a", 1), "what is lost stays")
		require.Equal(t, 4, w.store.Current().Tolerations.Len())
		time.Sleep(time.Second)
		require.Equal(t, 4, w.store.Current().Tolerations.Len())
		require.InDelta(t, 1, w.stale(t), 0)

		w.change(func() { w.tolerations = append(w.tolerations, named("e")) })
		require.True(t, holds("e", 1))
		require.True(t, holds("a", 1), "what was lost before stays, too")

		w.change(func() { w.tolerations = append(w.tolerations, named("a")) })
		require.Zero(t, w.stale(t), "what comes back is not lost")

		w.change(func() { w.tolerations = w.tolerations[1:] })
		require.True(t, holds("b", 2))
		w.change(func() { w.verbs = metav1.Verbs{"create", "list"} })
		require.False(t, holds("b", 2), "in the end it is confirmed")
		require.Equal(t, 4, w.store.Current().Tolerations.Len())
		require.Zero(t, w.stale(t))
	})
}
