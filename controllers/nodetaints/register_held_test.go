package nodetaints

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

const evicting = "empty:NoExecute"

// emptying returns a policy that registers a NoExecute taint beside the other.
func emptying(reconcile bool) v1alpha1.TaintPolicy {
	policy := registering(reconcile)
	policy.Spec.Register[0].Taints = append(policy.Spec.Register[0].Taints, v1alpha1.RegisteredTaint{Key: "empty", Effect: corev1.TaintEffectNoExecute})
	return policy
}

func TestTaintsThatEvictAreHeldBackBeyondALimit(t *testing.T) {
	for sentence, reconcile := range map[string]bool{"kept": true, "restored": false} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *registerWorld) {
				t.Helper()
				w.enforce(emptying(reconcile))
				for i := range 5 {
					w.set(node(fmt.Sprintf("n%d", i), banana))
				}
				w.room = 2
				count := func() (evicted, held int) {
					for i := range 5 {
						switch taints := w.taints(fmt.Sprintf("n%d", i)); taints {
						case dedicated:
							held++
						case dedicated + " " + evicting:
							evicted++
						default:
							t.Fatalf("taints %q", taints)
						}
					}
					return evicted, held
				}
				metric := w.controller.Metrics.heldNodes
				w.lead(t, func() {
					evicted, held := count()
					require.Equal(t, []int{2, 3}, []int{evicted, held}, "what evicts nobody is not held back")
					require.InDelta(t, 3, testutil.ToFloat64(metric), 0)
					require.Equal(t, "tollgate", w.checked[0].User.Username)
					require.Equal(t, dedicated, w.checked[0].Node.Spec.Taints[0].ToString())
					require.Len(t, w.checked[0].Given, 1)
					require.False(t, w.checked[0].Given[0].TimeAdded.IsZero())

					reported := func() (events []string) {
						for _, event := range w.reported() {
							if _, why, held := strings.Cut(event, " Warning TaintHeld: "); held {
								events = append(events, why)
							}
						}
						return events
					}
					const want = "TaintPolicy/banana registers empty:NoExecute, which is held back: " +
						"TaintPolicy/limits: spec.taints[0]: hits 3 pods, of at most 2; to approve it"
					require.Equal(t, []string{want, want, want}, reported())
					rest(holdReportInterval - 2*time.Second)
					require.Len(t, reported(), 3, "it is said now and then")
					rest(holdPause)
					require.Len(t, reported(), 6)

					w.mu.Lock()
					w.room = 5
					w.mu.Unlock()
					rest(holdPause + time.Second)
					evicted, _ = count()
					require.Equal(t, 5, evicted, "there is room again, or an approval")
					require.Zero(t, testutil.ToFloat64(metric))
				})
			})
		})
	}
}

func TestWhatIsHeldBackIsForTheLeaderToSay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(emptying(true))
		w.set(node("n", banana))
		w.set(node("gone", banana))
		metric := w.controller.Metrics.heldNodes
		w.lead(t, func() {
			require.InDelta(t, 2, testutil.ToFloat64(metric), 0)
			w.remove("gone")
			require.InDelta(t, 1, testutil.ToFloat64(metric), 0)
		})
		require.Zero(t, testutil.ToFloat64(metric))
	})
}

func TestTaintsThatEvictWaitUntilThePodsAreKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(emptying(true))
		w.set(node("n", banana))
		w.room, w.limitErr = 1, fmt.Errorf("look: %w", preview.ErrUnread)
		w.lead(t, func() {
			rest(time.Minute)
			require.Equal(t, dedicated, w.taints("n"))
			w.mu.Lock()
			w.limitErr = nil
			w.mu.Unlock()
			rest(time.Minute)
			require.Equal(t, dedicated+" "+evicting, w.taints("n"))
		})
	})
}

func TestThatPodsAreNotFollowedIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(emptying(true))
		w.set(node("n", banana))
		w.limitErr = fmt.Errorf("look: %w", preview.ErrUnfollowed)
		w.lead(t, func() {
			rest(5 * time.Minute)
			require.Equal(t, dedicated, w.taints("n"))
			told := w.reported()
			require.Len(t, told, 2)
			require.Contains(t, told[1], "Warning TaintHeld: TaintPolicy/banana registers empty:NoExecute, which is held back: how many pods")
		})
	})
}

func TestWhatALimitHoldsBackDoesNotKeepOthersWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		onlyEvicting := emptying(true)
		onlyEvicting.Spec.Register[0].Taints = onlyEvicting.Spec.Register[0].Taints[1:]
		other := registering(false)
		other.Name, other.UID = "other", "other"
		other.Spec.Register[0].NodeSelector.MatchLabels = map[string]string{"pool": "kiwi"}
		w.enforce(onlyEvicting, other)
		for i := range 5000 {
			w.set(node(fmt.Sprintf("n%d", i), banana))
		}
		w.lead(t, func() {
			rest(time.Minute)
			w.set(node("new", map[string]string{"pool": "kiwi"}))
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("new"))
			w.mu.Lock()
			defer w.mu.Unlock()
			require.LessOrEqual(t, len(w.checked), nodeBurst+62*nodeRate)
		})
	})
}

func TestANodeThatLeavesWhileItIsHeldBackIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(emptying(true))
		<-w.changed // The event of the node queues it.
		w.set(node("gone", banana))
		metric := w.controller.Metrics.heldNodes
		w.controller.Check = func(ctx context.Context, set *taint.Set, write preview.NodeWrite) (preview.Verdict, error) {
			w.remove("gone")
			return w.check(ctx, set, write)
		}
		w.lead(t, func() {
			require.Len(t, w.checked, 1)
			require.Zero(t, testutil.ToFloat64(metric))
			require.Empty(t, w.controller.states.uids)
		})
	})
}
