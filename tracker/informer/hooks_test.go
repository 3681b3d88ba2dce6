package informer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func TestG18ABudgetThatAllowsMoreIsTold(t *testing.T) {
	t.Parallel()
	tr, budgets := tracker.New(), &source{}
	p := tracker.PodOf(pod("1", "1"))
	tr.SetPod(p)
	tr.SetNode(tracker.Node{Name: p.NodeName, UID: "n", ResourceVersion: "1", Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}}, start)
	var told [][]tracker.Key
	feed := informer.NewBudgetFeed(tr, func(keys []tracker.Key) { told = append(told, keys) })
	require.NoError(t, feed.Attach(budgets))
	allows := func(version string, allowed int32) any {
		b := budget("a", "1", version)
		b.Status.DisruptionsAllowed = allowed
		return b
	}
	budgets.OnAdd(allows("1", 0), true)
	budgets.OnUpdate(allows("1", 0), allows("2", 0))
	require.Empty(t, told, "nothing has changed for anybody")
	budgets.OnUpdate(allows("2", 0), allows("3", 1))
	require.Equal(t, [][]tracker.Key{{p.Key}}, told)
	budgets.OnUpdate(allows("3", 1), allows("4", 0))
	require.Len(t, told, 1)
	budgets.OnDelete(allows("5", 0))
	require.Len(t, told, 2, "what is gone keeps nobody")
}
