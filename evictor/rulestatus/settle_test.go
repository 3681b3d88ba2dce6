package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
)

func TestSettling(t *testing.T) {
	t.Parallel()

	t.Run("DE-76 a rule without pods is True until the scheduler must know it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(4999 * time.Millisecond)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(time.Millisecond)
			w.says("broken", isFalse, ReasonNotStarted, "")
			w.pass(time.Hour)
			w.written(2)
		})
	})

	t.Run("DE-76 a pod that the scheduler placed meanwhile is not missed", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(4 * time.Second)
			key := w.pod("shop", "late")
			w.pending("broken")
			w.pass(6 * time.Second)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
			w.evict("broken", key)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonCompleted, "1 pod evicted so far.")
			for _, write := range w.log()[:2] {
				require.Equal(t, isTrue, write.conditions[0].Status)
			}
		})
	})

	t.Run("DE-76 a rule that becomes NoExecute settles, however long it stood", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			w.pass(time.Hour)
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-76 a rule that is changed while it settles starts anew", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(4 * time.Second)
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.DeviceSelector.Driver = new("gpu.example.com") })
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.written(2)
			w.pass(4 * time.Second)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-68 pods that were evicted before the first look are told of while it settles", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "fast")
			w.setEffect("broken", noExecute)
			w.tracker.SetTerminating(key)
			w.count("broken")
			w.start()
			w.says("broken", isTrue, ReasonSettling, settlingMessage+" 1 pod evicted so far.")
		})
	})

	t.Run("a restart neither shortens nor repeats the wait", func(t *testing.T) {
		t.Parallel()
		for sentence, c := range map[string]struct {
			after, until time.Duration
		}{
			"at once":                 {0, 5 * time.Second},
			"before the rule settled": {3 * time.Second, 6 * time.Second},
			"after the rule settled":  {7 * time.Second, 0},
			"long after that":         {30 * time.Second, 0},
		} {
			t.Run(sentence, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.start()
					w.setEffect("broken", noExecute)
					w.pass(c.after)
					w.restart()
					if c.until == 0 {
						w.says("broken", isFalse, ReasonNotStarted, "")
						w.pass(time.Hour)
						w.written(2)
						return
					}
					w.pass(c.until - c.after - time.Millisecond)
					w.says("broken", isTrue, ReasonSettling, settlingMessage)
					w.pass(time.Millisecond)
					w.says("broken", isFalse, ReasonNotStarted, "")
					w.written(2)
				})
			})
		}
	})

	t.Run("a rule that was created while nobody looked has settled already", func(t *testing.T) {
		t.Parallel()
		for sentence, c := range map[string]struct {
			after  time.Duration
			reason string
		}{
			"just now":     {time.Second, ReasonSettling},
			"5 s ago":      {5 * time.Second, ReasonSettling},
			"6 s ago":      {6 * time.Second, ReasonNotStarted},
			"a minute ago": {time.Minute, ReasonNotStarted},
		} {
			t.Run(sentence, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.setEffect("broken", noExecute)
					w.pass(c.after)
					w.start()
					require.Equal(t, c.reason, w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress).Reason)
				})
			})
		}
	})

	t.Run("a rule that was changed while nobody looked settles from when it is seen", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setEffect("broken", none)
			w.setEffect("broken", noExecute)
			w.pass(time.Hour)
			w.start()
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})
}
