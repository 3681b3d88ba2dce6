package rulestatus

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

// offClock is the time of an API server whose clock can be set.
type offClock struct{ by atomic.Int64 }

func (c *offClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *offClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func TestClockOfTheServerIsSet(t *testing.T) {
	t.Parallel()
	for sentence, by := range map[string]time.Duration{
		"forward by a day": 24 * time.Hour, "back by a day": -24 * time.Hour, "back by 3 s": -3 * time.Second,
	} {
		t.Run("H05 "+sentence, func(t *testing.T) {
			t.Parallel()

			t.Run("while it runs, pauses stay as they are", func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					server := &offClock{}
					w.base.Clock = server
					w.start()
					w.setEffect("broken", noExecute)
					w.pass(2 * time.Second)
					server.by.Store(int64(by))
					w.controller.Add("broken")
					w.pass(2999 * time.Millisecond)
					w.says("broken", isTrue, ReasonSettling, settlingMessage)
					w.pass(time.Millisecond)
					w.says("broken", isFalse, ReasonNotStarted, "")
					changed := w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress).LastTransitionTime
					require.WithinDuration(t, server.Now(), changed.Time, time.Second)
				})
			})

			t.Run("before a restart, no pause is longer than it ever is", func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					server := &offClock{}
					w.base.Clock = server
					w.start()
					w.setEffect("broken", noExecute)
					w.setEffect("previewed", none)
					w.pass(30 * time.Second)
					w.kill()
					server.by.Store(int64(by))
					w.start()
					w.pod("shop", "a")
					w.pending("broken")
					w.pass(10 * time.Second)
					w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
					w.pass(time.Minute)
					require.Equal(t, isTrue, w.condition("previewed", ConditionEvictionPreview).Status)
				})
			})
		})
	}
}

func TestHandlersDoNotWait(t *testing.T) {
	t.Parallel()
	t.Run("I16 PE7 no handler waits for a request", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			release := make(chan struct{})
			w.start()
			w.hang(release)
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				w.setEffect(name, noExecute)
			}
			require.Equal(t, workers, w.requests(), "the others wait for a worker")
			before := time.Now()
			for range 10_000 {
				w.controller.Add("a", "b", "c", "d", "e", "f")
				w.controller.Add("a")
			}
			require.Zero(t, time.Since(before), "no time passes in a bubble unless somebody waits")
			close(release)
			w.pass(time.Second)
			w.written(6)
		})
	})
}
