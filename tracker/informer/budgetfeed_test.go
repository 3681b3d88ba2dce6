package informer_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func budget(name, uid, version string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}
}

func TestBudgetFeed(t *testing.T) {
	t.Parallel()

	t.Run("budgets reach the tracker and go again", func(t *testing.T) {
		t.Parallel()
		tr, budgets := tracker.New(), &source{}
		feed := informer.NewBudgetFeed(tr, func([]tracker.Key) {})
		require.False(t, feed.HasSynced())
		require.NoError(t, feed.Attach(budgets))
		require.False(t, feed.HasSynced())
		budgets.synced = true
		require.True(t, feed.HasSynced())

		budgets.OnAdd(budget("a", "1", "1"), true)
		budgets.OnAdd(node("1"), true)
		require.Len(t, tr.Budgets("ns"), 1)
		budgets.OnUpdate(budget("a", "1", "1"), budget("a", "2", "3"))
		require.Equal(t, types.UID("2"), tr.Budgets("ns")[0].UID)
		budgets.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "ns/a", Obj: budget("a", "2", "3")})
		require.Empty(t, tr.Budgets("ns"))
	})

	t.Run("an informer that takes no handler is an error", func(t *testing.T) {
		t.Parallel()
		feed := informer.NewBudgetFeed(tracker.New(), func([]tracker.Key) {})
		require.ErrorContains(t, feed.Attach(&source{err: errors.New("stopped")}), "add PodDisruptionBudget event handler: stopped")
		require.False(t, feed.HasSynced())
	})

	t.Run("an informer of client-go", func(t *testing.T) {
		t.Parallel()
		budgets := informer.NewBudgets(fake.NewClientset(budget("a", "1", "1")))
		tr := tracker.New()
		feed := informer.NewBudgetFeed(tr, func([]tracker.Key) {})
		require.NoError(t, feed.Attach(budgets))
		run(t, budgets.RunWithContext)
		require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), feed.HasSynced))
		pod := tracker.PodOf(pod("1", "1"))
		require.True(t, tr.Budgets("ns")[0].Guards(&pod))
	})
}

// TestPodsAreTakenLeaveOfWhileTheyAreKnown pins that what held for a pod can be looked
// up when it begins to go, and when it is gone without a word.
func TestPodsAreTakenLeaveOfWhileTheyAreKnown(t *testing.T) {
	t.Parallel()
	tr, pods := tracker.New(), &source{}
	feed := informer.NewFeed(tr, &listener{}, clocktesting.NewFakePassiveClock(start))
	var left []string
	feed.OnLeaving(func(key tracker.Key) {
		situation, known := tr.Lookup(key)
		if known && !situation.Pod.Terminating {
			left = append(left, string(key.UID))
		}
	})
	require.NoError(t, feed.Attach(&source{}, pods))
	going := func(p *corev1.Pod) *corev1.Pod {
		p.DeletionTimestamp = new(metav1.NewTime(start))
		return p
	}

	pods.OnAdd(pod("1", "1"), true)
	require.Empty(t, left)
	pods.OnUpdate(pod("1", "1"), going(pod("1", "2")))
	require.Equal(t, []string{"1"}, left, "its deletion began")
	pods.OnUpdate(pod("1", "2"), going(pod("1", "3")))
	pods.OnDelete(going(pod("1", "4")))
	require.Len(t, left, 1)

	pods.OnAdd(pod("2", "5"), false)
	pods.OnUpdate(pod("2", "5"), pod("3", "6"))
	require.Equal(t, []string{"1", "2"}, left, "another pod has its name")
	pods.OnDelete(pod("3", "7"))
	require.Equal(t, []string{"1", "2", "3"}, left, "it was deleted at once")
}
