package rulestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRestart(t *testing.T) {
	t.Parallel()

	t.Run("DE-73 the count goes on after a restart", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b := w.pod("shop", "a"), w.pod("shop", "b")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", a)
			w.pass(10 * time.Second)
			w.restart()
			w.evict("broken", b)
			w.pass(11 * time.Second)
			w.says("broken", isFalse, ReasonCompleted, "2 pods evicted so far.")
			w.restart()
			w.pass(time.Hour)
			w.says("broken", isFalse, ReasonCompleted, "2 pods evicted so far.")
			w.written(3)
		})
	})

	t.Run("DE-73 pods that are evicted before the first look after a restart are counted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b := w.pod("shop", "a"), w.pod("shop", "b")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", a)
			w.pass(10 * time.Second)
			w.options.Synced = func() bool { return time.Since(w.started) > 15*time.Second }
			w.restart()
			w.evict("broken", b)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "2 pods evicted so far.")
		})
	})

	t.Run("DE-73 a replica that leads again goes on from what was counted meanwhile", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b := w.pod("shop", "a"), w.pod("shop", "b")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", a)
			w.pass(10 * time.Second)
			w.kill()
			// Somebody else evicts three and says so.
			w.overwrite("broken", metav1.Condition{
				Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isTrue, ObservedGeneration: 1, Reason: ReasonPodsPendingEviction,
				Message: "1 pod needs to be evicted in 1 namespace. 4 pods evicted so far.", LastTransitionTime: metav1.Now(),
			})
			w.run()
			w.evict("broken", b)
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "5 pods evicted so far.")
		})
	})

	t.Run("DE-73 a replica that leads again without being replaced counts nothing twice", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b := w.pod("shop", "a"), w.pod("shop", "b")
			w.start()
			w.setEffect("broken", noExecute)
			w.evict("broken", a)
			w.kill()
			w.evict("broken", b) // Not told of yet.
			w.run()
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "2 pods evicted so far.")
			w.kill()
			w.run()
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonCompleted, "2 pods evicted so far.")
		})
	})

	t.Run("DE-73 the count of Kubernetes' own controller is taken over", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setEffect("broken", noExecute)
			w.overwrite("broken", metav1.Condition{
				Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, ObservedGeneration: 1, Reason: ReasonCompleted,
				Message: "7 pods evicted since starting the controller.", LastTransitionTime: metav1.Now(),
			})
			w.pass(time.Minute)
			w.start()
			w.says("broken", isFalse, ReasonCompleted, "7 pods evicted so far.")
		})
	})

	t.Run("DE-63 no two writes within 10 s, whoever leads", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			a, b := w.pod("shop", "a"), w.pod("shop", "b")
			w.pod("shop", "stays")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(1500 * time.Millisecond)
			w.evict("broken", a)
			w.restart()
			w.evict("broken", b)
			w.pass(9499 * time.Millisecond)
			w.written(1)
			w.pass(time.Millisecond)
			w.written(2)
		})
	})
}

func TestRecreated(t *testing.T) {
	t.Parallel()

	t.Run("DE-75 G14 a rule that is created anew under the same name starts from nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			first := w.rule("broken").UID
			w.evict("broken", key)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonCompleted, "1 pod evicted so far.")
			w.deleteRule("broken")
			require.Equal(t, []types.UID{first}, w.forgotten())
			require.Zero(t, w.remembered())

			w.setEffect("broken", noExecute)
			require.NotEqual(t, first, w.rule("broken").UID)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-75 G14 nothing goes over to the successor if the deletion was not seen", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			first := w.rule("broken").UID
			w.evict("broken", key)
			w.pass(time.Second)
			w.replaceUnseen("broken")
			w.setEffect("broken", noExecute)
			w.says("broken", isTrue, ReasonSettling, settlingMessage)
			require.Equal(t, []types.UID{first}, w.forgotten())
			w.pass(10 * time.Second)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-75 G14 nothing goes over to a successor that came while another replica led", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			first := w.rule("broken").UID
			w.evict("broken", key)
			w.pass(10 * time.Second)
			w.restart() // Now the count is one that was carried over.
			w.kill()
			w.tell(w.replaceUnseen("broken"))
			w.run()
			require.Equal(t, []types.UID{first}, w.forgotten())
			w.pass(time.Minute)
			w.says("broken", isFalse, ReasonNotStarted, "")
		})
	})

	t.Run("DE-75 a rule that was deleted while another replica led is forgotten", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.start()
			w.setEffect("broken", noExecute)
			first := w.rule("broken").UID
			w.kill()
			w.deleteRule("broken")
			require.Empty(t, w.forgotten())
			w.run()
			require.Equal(t, []types.UID{first}, w.forgotten())
			require.Zero(t, w.remembered())
		})
	})

	t.Run("DE-60 a rule whose successor nobody told of yet is not written", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.pod("shop", "a")
			w.start()
			w.setEffect("broken", noExecute)
			w.pass(time.Minute)
			unseen := w.replaceUnseen("broken")
			w.pod("shop", "b")
			w.pending("broken")
			require.Empty(t, w.rule("broken").Status.Conditions)
			before := w.requests()
			w.pass(time.Minute)
			require.LessOrEqual(t, w.requests()-before, 12, "it must not spin")
			w.tell(unseen)
			w.pass(time.Millisecond)
			w.says("broken", isTrue, ReasonPodsPendingEviction, "2 pods need to be evicted in 1 namespace.")
		})
	})
}
