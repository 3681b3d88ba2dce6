package nodetaints

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const dedicated = "dedicated=banana:NoSchedule"

var banana = map[string]string{"pool": "banana"}

// inBubble runs test in a synctest bubble in which no controller runs yet.
func inBubble(t *testing.T, test func(t *testing.T, w *registerWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &registerWorld{world: newWorld()}
		w.controller = NewRegister(w.base(), RegisterOptions{
			Nodes: nodeAPI{world: w.world}, ListPods: w.listPods, Since: func() time.Time { return w.since },
			Check: w.check, Self: "tollgate", Metrics: NewRegisterMetrics(prometheus.NewPedanticRegistry()),
		})
		test(t, w)
	})
}

// registerWorld is a world with a RegisterController.
type registerWorld struct {
	*world

	controller *RegisterController
}

// lead runs the controller while during runs.
func (w *registerWorld) lead(t *testing.T, during func()) {
	t.Helper()
	lead(t, w.controller.Start, during)
}

func node(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid of " + name), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
		},
		Spec: corev1.NodeSpec{Taints: taints},
	}
}

func tainted(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

// registering returns a policy that registers dedicated=banana:NoSchedule on nodes of
// pool banana.
func registering(reconcile bool) v1alpha1.TaintPolicy {
	return v1alpha1.TaintPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "banana", UID: "banana", Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
		Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Register: []v1alpha1.TaintRegistration{{
				NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}},
				Taints:       []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
				Reconcile:    reconcile,
			}},
		},
	}
}

func TestReconcileKeepsTaintsOnNodesThatMatch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		other := tainted("maintenance", "", corev1.TaintEffectNoExecute)
		w.set(node("old", banana))
		w.set(node("tainted", banana, other))
		w.set(node("elsewhere", map[string]string{"pool": "kiwi"}))
		w.set(node("valued", banana, tainted("dedicated", "kiwi", corev1.TaintEffectNoSchedule)))
		rest(time.Hour)
		w.enforce(registering(true))
		w.lead(t, func() {
			require.Equal(t, dedicated, w.taints("old"))
			require.Equal(t, dedicated+" maintenance:NoExecute", w.taints("tainted"), "what others set stays")
			require.Empty(t, w.taints("elsewhere"))
			require.Equal(t, "dedicated=kiwi:NoSchedule", w.taints("valued"), "a setter gave it that value")
			require.False(t, w.nodes["old"].Spec.Taints[0].TimeAdded.IsZero())

			moved := node("elsewhere", banana)
			w.set(moved)
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("elsewhere"), "it came to match")

			w.set(node("old", banana))
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("old"), "it is put back")
			require.InDelta(t, 4, testutil.ToFloat64(w.controller.Metrics.taints.WithLabelValues(whyReconciled)), 0)
			require.Contains(t, w.reported()[0], `Normal TaintAdded: TaintPolicy/banana keeps dedicated=banana:NoSchedule on this node`)
		})
	})
}

func TestAChangeOfPoliciesIsCarriedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.set(node("n", banana))
		rest(time.Hour)
		w.lead(t, func() {
			require.Zero(t, w.count(), "no policies have been read")
			w.enforce(registering(true))
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("n"))
		})
	})
}

func TestANodeThatWasCreatedBareIsTainted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.set(node("existed", banana))
		rest(time.Hour)
		w.enforce(registering(false))
		rest(time.Hour)
		w.since = time.Now().Add(-30 * time.Minute)
		w.set(node("away", banana))
		w.pods = []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Name: "slipped"}, Spec: corev1.PodSpec{NodeName: "away"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "may"}, Spec: corev1.PodSpec{NodeName: "away", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "over"}, Spec: corev1.PodSpec{NodeName: "away"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
			{ObjectMeta: metav1.ObjectMeta{Name: "not there"}, Spec: corev1.PodSpec{NodeName: "existed"}},
		}
		w.lead(t, func() {
			require.Equal(t, dedicated, w.taints("away"), "it was created while nobody led")
			require.Empty(t, w.taints("existed"), "it existed before the policy")
			require.Len(t, w.reported(), 1)
			require.Contains(t, w.reported()[0], "away Warning TaintRestored")
			require.Contains(t, w.reported()[0], "do not tolerate it: 1")
			require.InDelta(t, 1, testutil.ToFloat64(w.controller.Metrics.intolerantPods), 0)

			w.set(node("now", banana))
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("now"), "it was created while the webhook was not asked")
			require.InDelta(t, 2, testutil.ToFloat64(w.controller.Metrics.taints.WithLabelValues(whyRestored)), 0)
		})
	})
}

func TestAGuardGivesNodesItsTaints(t *testing.T) {
	for sentence, reconcile := range map[string]bool{"to new nodes": false, "to all nodes, again and again": true} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *registerWorld) {
				t.Helper()
				w.set(node("existed", banana))
				rest(time.Hour)
				w.put(policyset.None().WithTaints(nil).WithPlacement([]v1alpha1.PlacementPolicy{{
					ObjectMeta: metav1.ObjectMeta{Name: "banana", UID: "banana", Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
					Spec: v1alpha1.PlacementPolicySpec{
						Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
						Guard: &v1alpha1.PlacementGuard{
							Taints:   []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
							Register: &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: banana}, Reconcile: reconcile},
						},
					},
				}}))
				rest(time.Hour)
				w.since = time.Now().Add(-30 * time.Minute)
				w.set(node("new", banana))
				w.set(node("elsewhere", map[string]string{"pool": "kiwi"}))
				w.lead(t, func() {
					require.Equal(t, dedicated, w.taints("new"), "it was created while the webhook was not asked")
					require.Empty(t, w.taints("elsewhere"))
					require.Equal(t, reconcile, w.taints("existed") == dedicated, "it existed before the policy")
					require.Contains(t, strings.Join(w.reported(), "\n"), "PlacementPolicy/banana")
					require.NotContains(t, strings.Join(w.reported(), "\n"), "TaintPolicy/")
				})
			})
		})
	}
}

func TestATaintThatSomebodyRemovedDoesNotComeBack(t *testing.T) {
	for sentence, c := range map[string]struct{ after time.Duration }{
		"at once":          {0},
		"after a while":    {time.Minute},
		"before a restart": {-1},
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *registerWorld) {
				t.Helper()
				w.enforce(registering(false))
				rest(time.Hour)
				born := node("n", banana, tainted("dedicated", "banana", corev1.TaintEffectNoSchedule))
				untainted := born.DeepCopy()
				untainted.Spec.Taints = nil
				if c.after < 0 {
					w.set(born)
					w.lead(t, func() {})
					rest(time.Minute)
					w.set(untainted)
					w.since = time.Now()
					w.lead(t, func() { require.Empty(t, w.taints("n")) })
					return
				}
				w.lead(t, func() {
					w.set(born)
					rest(time.Second + c.after)
					w.set(untainted)
					rest(time.Hour)
					require.Empty(t, w.taints("n"))
				})
			})
		})
	}
}

func TestATaintThatCameAndWentBeforeTheFirstLookDoesNotComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		policy := registering(false)
		w.lead(t, func() {
			born := node("n", banana, tainted("dedicated", "banana", corev1.TaintEffectNoSchedule))
			untainted := born.DeepCopy()
			untainted.Spec.Taints = nil
			w.set(born)
			w.set(untainted)
			later := node("later", banana)
			w.set(later)
			laterTainted := node("later", banana, tainted("dedicated", "banana", corev1.TaintEffectNoSchedule))
			w.set(laterTainted)
			w.set(later)
			w.set(node("bare", banana))
			rest(time.Second)
			w.enforce(policy)
			rest(time.Second)
			require.Empty(t, w.taints("n"))
			require.Empty(t, w.taints("later"))
			require.Equal(t, dedicated, w.taints("bare"))
		})
	})
}

func TestWhatANodeIsOwedItIsGivenHoweverLongThatTakes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(registering(false))
		rest(time.Hour)
		const nodes = 500
		for i := range nodes {
			w.set(node(fmt.Sprintf("n%d", i), banana))
		}
		w.patchErr = errAway
		w.lead(t, func() {
			rest(5 * time.Minute)
			w.set(node("n0", banana, tainted("dedicated", "banana", corev1.TaintEffectNoSchedule)))
			w.set(node("n0", banana)) // somebody has taken it off again
			w.remove("n1")
			w.mu.Lock()
			w.patchErr = nil
			w.mu.Unlock()
			rest(5 * time.Minute)
			require.Empty(t, w.taints("n0"))
			for i := 2; i < nodes; i++ {
				require.Equal(t, dedicated, w.taints(fmt.Sprintf("n%d", i)))
			}
			w.set(node("n2", banana))
			rest(time.Minute)
			require.Empty(t, w.taints("n2"), "it has had what it was owed")
			w.controller.states.mu.Lock()
			defer w.controller.states.mu.Unlock()
			require.LessOrEqual(t, len(w.controller.states.newcomers), nodes)
			for uid, n := range w.controller.states.newcomers {
				require.Empty(t, n.pending, uid)
			}
		})
	})
}

func TestPoliciesThatReachUsTooLateDoNotCountForNewNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		policy, second := registering(false), registering(false)
		second.Name, second.UID = "second", "second"
		second.Spec.Register[0].Taints = []v1alpha1.RegisteredTaint{{Key: "late", Effect: corev1.TaintEffectNoSchedule}}
		w.enforce()
		w.lead(t, func() {
			w.set(node("n", banana))
			rest(time.Second + latePolicyWindow)
			w.enforce(policy)
			rest(time.Second)
			require.Empty(t, w.taints("n"))

			w.mu.Lock()
			w.patchErr = errAway
			w.mu.Unlock()
			w.set(node("owed", banana))
			rest(time.Second + latePolicyWindow)
			w.enforce(policy, second)
			rest(time.Second)
			w.mu.Lock()
			w.patchErr = nil
			w.mu.Unlock()
			rest(time.Minute)
			require.Equal(t, dedicated, w.taints("owed"), "it is owed what it was, and nothing more")
		})
	})
}

func TestThatPodsCannotBeCountedIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(registering(false))
		w.podsErr = errAway
		w.set(node("n", banana))
		w.lead(t, func() {
			require.Equal(t, dedicated, w.taints("n"))
			require.Contains(t, w.reported()[0], "do not tolerate it: could not be counted")
		})
	})
}

func TestC22ANodeThatComesBackUnderItsNameIsNew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(registering(false))
		w.lead(t, func() {
			w.set(node("n", banana, tainted("dedicated", "banana", corev1.TaintEffectNoSchedule)))
			rest(time.Minute)
			again := node("n", banana)
			again.UID = "another"
			w.set(again) // the watch missed that it was away
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("n"))

			w.remove("n")
			w.set(node("n", banana))
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("n"))
		})
	})
}

func TestPoliciesThatReachUsLateCountForNewNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce()
		w.lead(t, func() {
			policy := registering(false)
			w.set(node("n", banana))
			rest(2 * time.Second)
			w.enforce(policy)
			rest(time.Second)
			require.Equal(t, dedicated, w.taints("n"))
		})
	})
}

func TestWhatWasWrittenMeanwhileStays(t *testing.T) {
	for sentence, meanwhile := range map[string]func(w *registerWorld){
		"the list is not what it was": func(w *registerWorld) {
			w.nodes["n"] = node("n", banana, tainted("other", "", corev1.TaintEffectNoExecute))
		},
		"the node is not what it was": func(w *registerWorld) {
			another := node("n", banana)
			another.UID = "another"
			w.nodes["n"] = another
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *registerWorld) {
				t.Helper()
				w.enforce(registering(true))
				w.set(node("n", banana))
				w.interleave = func() { w.locked(func() { meanwhile(w) }) }
				before := w.nodes["n"]
				w.lead(t, func() {
					require.NotContains(t, w.taints("n"), dedicated)
					w.locked(func() { w.nodes["n"] = before })
					rest(time.Minute)
					require.Equal(t, dedicated, w.taints("n"))
				})
			})
		})
	}
}

func TestFailuresAreTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(registering(true))
		w.set(node("n", banana))
		w.patchErr = errAway
		w.lead(t, func() {
			rest(time.Minute)
			require.Greater(t, w.count(), 3)
			require.Less(t, w.count(), 20)
			w.mu.Lock()
			w.patchErr = nil
			w.mu.Unlock()
			rest(time.Minute)
			require.Equal(t, dedicated, w.taints("n"))
		})
	})
}

func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.enforce(registering(true))
		w.set(node("n", banana))
		w.leads = false
		w.lead(t, func() {
			rest(time.Minute)
			require.Zero(t, w.count())
			w.mu.Lock()
			w.leads = true
			w.mu.Unlock()
			rest(2 * time.Second)
			require.Equal(t, dedicated, w.taints("n"))
		})
		w.set(node("later", banana))
		rest(time.Minute)
		require.Empty(t, w.taints("later"), "nobody leads any more")
	})
}

func TestManyNodesAreTaintedAtABoundedRate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		for i := range 200 {
			w.set(node(fmt.Sprintf("n%d", i), banana))
		}
		w.enforce(registering(true))
		w.lead(t, func() {
			require.LessOrEqual(t, w.count(), nodeBurst+nodeRate+1)
			rest(30 * time.Second)
			require.Equal(t, 200, w.count())
			w.mu.Lock()
			defer w.mu.Unlock()
			require.LessOrEqual(t, w.reads, 8*200, "those that wait do not ask again and again")
		})
	})
}

func TestANodeThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		going := node("n", banana)
		going.DeletionTimestamp = new(metav1.Now())
		w.set(going)
		w.enforce(registering(true))
		w.lead(t, func() { require.Zero(t, w.count()) })
	})
}

func TestAPolicyThatIsNewerThanTheNodeDoesNotRestore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		w.since = time.Time{} // no earlier leader is recorded
		w.set(node("n", banana))
		rest(time.Hour)
		w.enforce(registering(false))
		w.lead(t, func() { require.Zero(t, w.count()) })
	})
}

func TestTwoPoliciesAreNamedTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, w *registerWorld) {
		t.Helper()
		second := registering(true)
		second.Name, second.UID = "apple", "apple"
		second.Spec.Register[0].Taints = []v1alpha1.RegisteredTaint{{Key: "fruit", Effect: corev1.TaintEffectPreferNoSchedule}}
		w.set(node("n", banana))
		w.enforce(registering(true), second)
		w.lead(t, func() {
			require.Equal(t, dedicated+" fruit:PreferNoSchedule", w.taints("n"))
			require.Len(t, w.reported(), 1)
			require.Contains(t, w.reported()[0], "TaintPolicy/apple, TaintPolicy/banana keeps fruit:PreferNoSchedule, dedicated=banana:NoSchedule")
		})
	})
}
