package rulestatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestPreview(t *testing.T) {
	t.Parallel()

	t.Run("DE-69 G20 a rule with the effect None says once what it would do, and the preview beside it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.publish(3)
			w.pod("shop", "a")
			w.pod("bank", "b")
			w.pod("bank", "tolerating", resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists})
			w.start()
			w.setEffect("broken", none)
			counts := "3 published devices selected. 3 allocated devices selected. 2 pods would be evicted in 2 different namespaces if the effect was NoExecute."
			w.says("broken", isFalse, ReasonNoEffect, counts+" This information will not be updated again; condition tollgate.dev/EvictionPreview is.")
			w.previews("broken", isTrue, ReasonPodsWouldBeEvicted, counts+" Pods: bank/b, shop/a.")
			w.written(1)
		})
	})

	t.Run("DE-70 a device that two claims share counts twice, and pods that tolerate for a while count", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a", resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists, Effect: noExecute, TolerationSeconds: new(int64(60))})
			w.claim(w.pod("shop", "b"), "shop-a")
			w.start()
			w.setEffect("broken", none)
			w.previews("broken", isTrue, ReasonPodsWouldBeEvicted,
				"0 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if the effect was NoExecute. Pods: shop/a, shop/b.")
		})
	})

	t.Run("the preview follows, EvictionInProgress does not", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			said := w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress)
			w.previews("broken", isFalse, ReasonNoPods, "0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute.")
			w.pass(61 * time.Second)
			key := w.pod("shop", "a")
			w.pass(time.Minute)
			w.previews("broken", isTrue, ReasonPodsWouldBeEvicted,
				"0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. Pods: shop/a.")
			w.tracker.DeletePod(key)
			w.pass(time.Minute)
			w.previews("broken", isFalse, ReasonNoPods, "0 published devices selected. 1 allocated device selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute.")
			w.written(3)
			require.Equal(t, said, w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress))
		})
	})

	t.Run("the preview is written at most once a minute, whatever happens", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			for i := range 59 {
				w.pod("shop", fmt.Sprintf("pod-%02d", i))
				w.controller.Add("broken")
				w.pass(5 * time.Second)
			}
			w.written(5)
			log := w.log()
			for i := range log[1:] {
				require.GreaterOrEqual(t, log[i+1].at.Sub(log[i].at), time.Minute)
			}
		})
	})

	t.Run("the preview is not written when only the names of the pods change", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", none)
			w.pass(5 * time.Minute)
			w.tracker.DeletePod(key)
			w.tracker.DeleteClaim(tracker.ClaimName{Namespace: "shop", Name: "a"}, "claim-of-uid-shop-a")
			w.pod("shop", "b")
			w.pass(5 * time.Minute)
			w.written(1)
		})
	})

	t.Run("ten pods are not taken for one", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "pod-0")
			w.start()
			w.setEffect("broken", none)
			for i := range 9 {
				w.pod("shop", fmt.Sprintf("pod-%d", i+1))
			}
			w.pass(time.Minute)
			require.Contains(t, w.condition("broken", ConditionEvictionPreview).Message,
				"10 pods would be evicted in 1 namespace if the effect was NoExecute. Pods: shop/pod-0, shop/pod-1, shop/pod-2, shop/pod-3, shop/pod-4 and 5 more.")
		})
	})

	t.Run("DE-71 a new generation is previewed at once, also when only TimeAdded changes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			w.pod("shop", "a")
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) {
				rule.Spec.Taint.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Second)))
			})
			w.written(2)
			counts := "0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute."
			w.says("broken", isFalse, ReasonNoEffect, counts+" "+seePreview)
			w.previews("broken", isTrue, ReasonPodsWouldBeEvicted, counts+" Pods: shop/a.")
			require.Equal(t, int64(2), w.condition("broken", ConditionEvictionPreview).ObservedGeneration)
		})
	})

	t.Run("DE-71 a new generation is previewed also when it comes to the same", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			w.pass(3 * time.Second)
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Value = "very" })
			preview := w.condition("broken", ConditionEvictionPreview)
			require.Equal(t, int64(2), preview.ObservedGeneration)
			require.WithinDuration(t, time.Now(), preview.LastTransitionTime.Time, 0)
		})
	})

	t.Run("DE-71 after a restart, what was said once is not said anew, and the preview goes on", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", none)
			said := w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress)
			w.pod("shop", "a")
			w.pass(20 * time.Second)
			w.restart()
			w.written(1)
			w.pass(41 * time.Second)
			w.written(2)
			require.Equal(t, isTrue, w.condition("broken", ConditionEvictionPreview).Status)
			require.Equal(t, said, w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress))
		})
	})

	t.Run("what Kubernetes' own controller said once is said anew, because it leaves pods out", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.setEffect("broken", none)
			w.overwrite("broken", metav1.Condition{
				Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, ObservedGeneration: 1, Reason: ReasonNoEffect,
				Message: "0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute. " +
					"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
				LastTransitionTime: metav1.Now(),
			})
			w.pass(time.Minute)
			w.start()
			require.Contains(t, w.condition("broken", resourcev1.DeviceTaintConditionEvictionInProgress).Message, "1 pod would be evicted")
		})
	})

	t.Run("the preview goes when the effect is something else", func(t *testing.T) {
		t.Parallel()
		for _, effect := range []resourcev1.DeviceTaintEffect{noExecute, noSchedule, "Unheard"} {
			t.Run(string(effect), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.start()
					w.setEffect("broken", none)
					require.NotZero(t, w.condition("broken", ConditionEvictionPreview))
					w.setEffect("broken", effect)
					require.Zero(t, w.condition("broken", ConditionEvictionPreview))
					w.pass(time.Minute)
					w.setEffect("broken", none)
					require.NotZero(t, w.condition("broken", ConditionEvictionPreview))
				})
			})
		}
	})

	t.Run("the preview gives way where others fill the status", func(t *testing.T) {
		t.Parallel()
		for _, others := range []int{6, 7} {
			t.Run(fmt.Sprintf("%d conditions of others", others), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.setEffect("broken", none)
					var conditions []metav1.Condition
					for i := range others {
						conditions = append(conditions, metav1.Condition{Type: fmt.Sprintf("example.com/%d", i)})
					}
					w.overwrite("broken", conditions...)
					w.start()
					stored := w.rule("broken").Status.Conditions
					require.Len(t, stored, resourcev1.DeviceTaintRuleStatusMaxConditions)
					require.Equal(t, others == 6, w.condition("broken", ConditionEvictionPreview) != metav1.Condition{})
					w.pass(time.Hour)
					w.written(1)
				})
			})
		}
	})

	t.Run("DE-06 G20 the count is exactly the pods that use a selected device", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			for i := range 40 {
				w.pod(fmt.Sprintf("namespace-%d", i%7), fmt.Sprintf("pod-%02d", i))
			}
			w.start()
			w.change("broken", func(rule *resourcev1.DeviceTaintRule) {
				rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Device: new("namespace-3-pod-10")}
				rule.Spec.Taint.Effect = none
			})
			message := w.condition("broken", ConditionEvictionPreview).Message
			require.True(t, strings.HasSuffix(message, "1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. Pods: namespace-3/pod-10."), message)
		})
	})
}

// publish publishes n devices.
func (w *world) publish(n int) {
	slice := tracker.Slice{Name: "slice", UID: "slice", Driver: "gpu.example.com", Pool: "published", Generation: 1}
	for i := range n {
		slice.Devices = append(slice.Devices, tracker.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	w.tracker.SetSlice(slice, time.Now())
}
