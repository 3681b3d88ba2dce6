package rulestatus

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tollgate-dev/tollgate/tracker"
)

// waitReturns reports whether this would return at once:
//
//	kubectl wait --for=condition=EvictionInProgress=false devicetaintrule/<name>
//
// What kubectl takes for the condition is one that is not about an older generation.
func (w *world) waitReturns(name string) bool {
	rule := w.rule(name)
	c := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	return c != nil && c.ObservedGeneration >= rule.Generation && c.Status == isFalse
}

func TestKubectlWait(t *testing.T) {
	t.Parallel()

	t.Run("DE-76 kubectl wait returns when the pods are gone, and not early", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			var keys []tracker.Key
			for i := range 20 {
				keys = append(keys, w.pod("shop", fmt.Sprintf("pod-%02d", i)))
			}
			w.start()
			w.setEffect("broken", none)
			require.True(t, w.waitReturns("broken"), "nothing is evicted")
			w.pass(time.Hour)
			w.setEffect("broken", noExecute)
			for at := range 21 {
				require.False(t, w.waitReturns("broken"), "%d s", at)
				if at == 4 {
					keys = append(keys, w.pod("shop", "placed-late"))
				}
				if at < len(keys) {
					w.evict("broken", keys[at])
				}
				w.pass(time.Second)
			}
			w.pass(evaluatePause)
			require.True(t, w.waitReturns("broken"), "DE-63 the end is not held back")
			w.says("broken", isFalse, ReasonCompleted, "21 pods evicted so far.")
		})
	})

	t.Run("DE-76 kubectl wait does not return early because there is no pod yet, nor after a restart", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			for _, restart := range []bool{false, true} {
				w.setEffect("broken", none)
				w.setEffect("broken", noExecute)
				for range 5 {
					require.False(t, w.waitReturns("broken"))
					w.pass(time.Second)
					if restart {
						w.restart()
					}
				}
				w.pass(2 * time.Second)
				require.True(t, w.waitReturns("broken"))
			}
		})
	})

	t.Run("DE-76 kubectl wait does not return while nobody leads", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			require.True(t, w.waitReturns("broken"))
			w.kill()
			w.setEffect("broken", none)
			w.setEffect("broken", noExecute)
			require.False(t, w.waitReturns("broken"))
			w.pass(time.Hour)
			w.start()
			require.False(t, w.waitReturns("broken"))
		})
	})
}
