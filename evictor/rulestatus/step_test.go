package rulestatus

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// counting counts the decisions about pods.
func (w *world) counting() *atomic.Int64 {
	var count atomic.Int64
	decide := w.options.Decide
	w.options.Decide = func(s tracker.Situation) bool {
		count.Add(1)
		return decide(s)
	}
	return &count
}

// hear tells the controller of something every 10 ms.
func (w *world) hear(times int) {
	for range times {
		w.controller.Add("broken")
		w.pass(10 * time.Millisecond)
	}
}

func TestCostOfEvents(t *testing.T) {
	t.Parallel()

	t.Run("PE8 pods are not counted for each event", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			decisions := w.counting()
			w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			before := decisions.Load()
			w.hear(1000)
			require.LessOrEqual(t, decisions.Load()-before, int64(11))
			w.written(1)
		})
	})

	t.Run("PE8 pods are not counted for each event where somebody else wrote what is right", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			decisions := w.counting()
			w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) {
				rule.Spec.Taint.Effect = noSchedule
				rule.Status.Conditions = []metav1.Condition{{
					Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, ObservedGeneration: 2,
					Reason: ReasonOtherEffect, Message: otherMessage, LastTransitionTime: metav1.Now(),
				}}
			})
			before := decisions.Load()
			w.hear(1000)
			require.LessOrEqual(t, decisions.Load()-before, int64(11))
			w.written(1)
		})
	})

	t.Run("a pod that becomes pending just after a look is not forgotten", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(70 * time.Second)
			w.pending("broken")
			w.pod("shop", "a")
			w.pending("broken")
			w.says("broken", isFalse, ReasonNotStarted, "")
			w.pass(evaluatePause)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})
}

// hasty is a tracker in which a rule changes between two questions.
type hasty struct {
	*tracker.Tracker

	once atomic.Bool
	then func()
}

func (h *hasty) Impact(name string) (tracker.Impact, bool) {
	if h.once.CompareAndSwap(false, true) {
		h.then()
	}
	return h.Tracker.Impact(name)
}

func TestRuleChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for sentence, change := range map[string]func(*tracker.Rule){
		"changed":      func(rule *tracker.Rule) { rule.Generation++; rule.Taint.Effect = none },
		"created anew": func(rule *tracker.Rule) { rule.UID = "successor" },
		"not there":    nil,
	} {
		t.Run("nothing is written about a rule that is "+sentence+" while it is looked at", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				h := &hasty{Tracker: w.tracker}
				h.then = func() {
					rule, _ := w.tracker.Rule("broken")
					if change == nil {
						w.tracker.DeleteRule("broken", rule.UID)
						return
					}
					change(&rule)
					w.tracker.SetRule(rule, time.Now())
				}
				w.options.Tracker = h
				w.start()
				w.setEffect("broken", noExecute)
				synctest.Wait()
				require.Zero(t, w.requests())
			})
		})
	}
}
