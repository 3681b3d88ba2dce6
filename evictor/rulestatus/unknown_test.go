package rulestatus

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// unclaim forgets the claim of a pod, as when claims may not be listed any more.
func (w *world) unclaim(key tracker.Key) {
	w.tracker.DeleteClaim(tracker.ClaimName{Namespace: key.Namespace, Name: key.Name}, "claim-of-"+key.UID)
}

func TestDE60WhatIsNotKnownIsNotCounted(t *testing.T) {
	t.Parallel()
	const pending, waiting = "1 pod needs to be evicted in 1 namespace.", "rule status waits"

	t.Run("DE-60 a leader that cannot see claims does not say that nobody has to leave, and says that it waits once", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			var synced atomic.Bool
			synced.Store(true)
			w.options.Synced = synced.Load
			w.start()
			w.setEffect("broken", noExecute)
			w.setEffect("none", none)
			w.says("broken", isTrue, ReasonPodsPendingEviction, pending)
			require.Zero(t, w.said(waiting))
			w.written(2)

			synced.Store(false)
			w.kill()
			w.unclaim(key)
			w.restart()
			w.pass(time.Hour)
			w.says("broken", isTrue, ReasonPodsPendingEviction, pending)
			w.written(2)
			require.Equal(t, 1, w.said(waiting))

			w.claim(key, "shop-a")
			synced.Store(true)
			w.pass(time.Minute)
			w.says("broken", isTrue, ReasonPodsPendingEviction, pending)
			require.Equal(t, 2, w.said(waiting), "it is said that it is over")
			w.evict("broken", key)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "1 pod evicted so far.")
		})
	})

	for sentence, lose := range map[string]func(w *world, synced *atomic.Bool, key tracker.Key){
		"devices stop being known": func(w *world, _ *atomic.Bool, _ tracker.Key) { w.tracker.SetDevicesKnown(false) },
		"claims are being forgotten": func(w *world, synced *atomic.Bool, key tracker.Key) {
			synced.Store(false)
			w.unclaim(key)
		},
	} {
		t.Run("DE-60 nothing is written, and no count is lost, when "+sentence+" while a rule is looked at", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				a, b := w.pod("shop", "a"), w.pod("shop", "b")
				var synced atomic.Bool
				synced.Store(true)
				h := &hasty{Tracker: w.tracker, then: func() { lose(w, &synced, b) }}
				h.once.Store(true)
				w.options.Tracker, w.options.Synced = h, synced.Load
				w.start()
				w.setEffect("broken", noExecute)
				w.evict("broken", a)
				w.pass(time.Minute)
				w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace. 1 pod evicted so far.")
				w.written(2)

				h.once.Store(false)
				w.pending("broken")
				synctest.Wait()
				w.pass(time.Hour)
				w.written(2)
				require.Equal(t, 1, w.remembered())
				require.Equal(t, []types.UID(nil), w.forgotten())
				require.Equal(t, 1, w.evictions(w.rule("broken").UID))
			})
		})
	}
}
