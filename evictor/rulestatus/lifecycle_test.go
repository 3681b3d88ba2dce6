package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	isTrue  = metav1.ConditionTrue
	isFalse = metav1.ConditionFalse

	noExecute  = resourcev1.DeviceTaintEffectNoExecute
	noSchedule = resourcev1.DeviceTaintEffectNoSchedule
	none       = resourcev1.DeviceTaintEffectNone
)

func TestExecuting(t *testing.T) {
	t.Parallel()

	t.Run("DE-61 a rule with pods is True at once, before any of them is evicted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.pod("shop", "b")
			w.pod("bank", "c")
			w.start()
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "3 pods need to be evicted in 2 different namespaces.")
			w.written(1)
		})
	})

	t.Run("DE-61 a rule that is known when the controller starts is evaluated at once", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.setEffect("broken", noExecute)
			w.start()
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})

	t.Run("DE-61 a rule that only its status or metadata changed of is not written", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noSchedule)
			w.written(1)
			w.pass(time.Hour)
			for range 100 {
				w.tell(w.rule("broken"))
				w.pass(time.Second)
			}
			w.written(1)
		})
	})

	t.Run("DE-62 DE-68 evictions are counted, at most every 10 s", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b, c := w.pod("shop", "a"), w.pod("shop", "b"), w.pod("shop", "c")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Second)
			w.evict("broken", a)
			w.pass(8999 * time.Millisecond)
			w.written(1)
			w.pass(time.Millisecond)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "2 pods need to be evicted in 1 namespace. 1 pod evicted so far.")
			w.evict("broken", b, c)
			w.written(2)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonCompleted, "3 pods evicted so far.")
			w.written(3)
		})
	})

	t.Run("DE-62 a pod that becomes pending later makes it True again", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonNotStarted, "")
			w.pod("shop", "late")
			w.pending("broken")
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})

	t.Run("DE-66 pods whose time has not come are pending, terminating, finished and tolerating ones are not", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "later", resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists, Effect: noExecute, TolerationSeconds: new(int64(600))})
			w.pod("shop", "never", resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists})
			w.tracker.SetTerminating(w.pod("shop", "leaving"))
			key := w.pod("shop", "finished")
			w.tracker.SetPod(tracker.Pod{Key: key, NodeName: "node", Claims: []tracker.PodClaim{{Name: "finished"}}, Finished: true})
			w.start()
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1 pod needs to be evicted in 1 namespace.")
		})
	})

	t.Run("DE-74 it becomes False when pods vanish by other means", func(t *testing.T) {
		t.Parallel()
		for name, vanish := range map[string]func(w *world, key tracker.Key){
			"deleted by a user": func(w *world, key tracker.Key) { w.tracker.DeletePod(key) },
			"claim deallocated": func(w *world, _ tracker.Key) {
				w.tracker.SetClaim(tracker.Claim{ClaimName: tracker.ClaimName{Namespace: "shop", Name: "a"}, UID: "claim-of-uid-shop-a"})
			},
			"claim deleted": func(w *world, _ tracker.Key) {
				w.tracker.DeleteClaim(tracker.ClaimName{Namespace: "shop", Name: "a"}, "claim-of-uid-shop-a")
			},
			"finished by itself": func(w *world, key tracker.Key) {
				w.tracker.SetPod(tracker.Pod{Key: key, NodeName: "node", Finished: true})
			},
			"no longer a consumer": func(w *world, key tracker.Key) { w.tracker.SetPod(tracker.Pod{Key: key, NodeName: "node"}) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					key := w.pod("shop", "a")
					w.start()
					w.setEffect("broken", noExecute)
					w.pass(30 * time.Second)
					vanish(w, key)
					w.pending("broken")
					w.says("broken", isFalse, ReasonNotStarted, "")
				})
			})
		}
	})

	t.Run("DE-74 it becomes False within a minute even if nobody says that pods have vanished", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(90 * time.Second)
			w.tracker.DeletePod(key)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-77 a thousand pods that are evicted one by one take few writes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			keys := make([]tracker.Key, 0, 1000)
			for i := range 1000 {
				keys = append(keys, w.pod("shop", string(rune('a'+i%26))+time.Duration(i).String()))
			}
			w.start()
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "1000 pods need to be evicted in 1 namespace.")
			for _, key := range keys {
				w.evict("broken", key)
				w.pass(25 * time.Millisecond)
			}
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonCompleted, "1000 pods evicted so far.")
			w.written(4)
		})
	})

	t.Run("DE-20 a rule that selects no device at all says so", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.start()
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) {
				rule.Spec.DeviceSelector, rule.Spec.Taint.Effect = nil, noExecute
			})
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})
}

func TestVS03ASelectorThatIsNotUnderstoodEvictsNobody(t *testing.T) {
	t.Parallel()
	const message = "No device is selected because this version of Tollgate does not support deviceClassName, selectors in the selector. Select by driver, pool or device."
	for _, effect := range []resourcev1.DeviceTaintEffect{noExecute, noSchedule, none} {
		t.Run("VS-03 a rule with the effect "+string(effect)+" says so and has no preview", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.unsupported = []string{"deviceClassName", "selectors"}
				w.pod("shop", "a")
				w.start()
				w.setEffect("broken", effect)
				w.says("broken", isFalse, ReasonUnsupportedSelector, message)
				require.Zero(t, w.condition("broken", ConditionEvictionPreview))
				w.pass(time.Hour)
				w.written(1)
			})
		})
	}

	t.Run("VS-03 a rule that becomes one keeps its count, and loses its preview", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", key)
			w.setEffect("broken", none)
			require.NotZero(t, w.condition("broken", ConditionEvictionPreview))
			w.unsupported = []string{"deviceClassName", "selectors"}
			w.setEffect("broken", none)
			w.says("broken", isFalse, ReasonUnsupportedSelector, message+" 1 pod evicted so far.")
			require.Zero(t, w.condition("broken", ConditionEvictionPreview))
		})
	})
}

func TestOtherEffects(t *testing.T) {
	t.Parallel()
	for _, effect := range []resourcev1.DeviceTaintEffect{noSchedule, "NoExecuteWithPodDisruptionBudget"} {
		t.Run("DE-72 a rule with the effect "+string(effect)+" evicts nobody", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.pod("shop", "a")
				w.start()
				w.setEffect("broken", effect)
				w.says("broken", isFalse, ReasonOtherEffect, "Eviction only happens for the NoExecute effect.")
				require.Zero(t, w.condition("broken", ConditionEvictionPreview))
				w.pass(time.Hour)
				w.written(1)
			})
		})
	}

	t.Run("DE-68 the count stays when the effect changes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", key)
			w.setEffect("broken", noSchedule)
			w.says("broken", isFalse, ReasonOtherEffect, "Eviction only happens for the NoExecute effect. 1 pod evicted so far.")
			w.setEffect("broken", none)
			w.says("broken", isFalse, ReasonNoEffect,
				"0 published devices selected. 1 allocated device selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute. "+
					"This information will not be updated again; condition tollgate.dev/EvictionPreview is. 1 pod evicted so far.")
		})
	})
}
