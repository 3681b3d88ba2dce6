package informer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func TestJ03AllNodesDownIsTold(t *testing.T) {
	t.Parallel()
	tr, nodes, pods := tracker.New(), &source{}, &source{}
	feed := informer.NewFeed(tr, &listener{}, clocktesting.NewFakePassiveClock(start))
	var told [][2]int
	feed.OnNodesDown(func(nodes, down int) { told = append(told, [2]int{nodes, down}) })
	require.NoError(t, feed.Attach(nodes, pods))
	named := func(name, version string, down bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}}
		if down {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		}
		return n
	}

	nodes.OnAdd(named("a", "1", false), true)
	nodes.OnAdd(named("b", "2", true), true)
	require.Empty(t, told)
	nodes.OnUpdate(named("a", "1", false), named("a", "3", true))
	require.Equal(t, [][2]int{{2, 2}}, told, "all are down")
	nodes.OnAdd(named("c", "4", true), false)
	require.Len(t, told, 1, "they still are")
	nodes.OnAdd(named("d", "5", false), false)
	require.Equal(t, [2]int{4, 3}, told[1], "one is not")
	nodes.OnDelete(named("d", "6", false))
	require.Equal(t, [2]int{3, 3}, told[2], "the one that was not is gone")
	tr.RefreshNode(tracker.NodeOf(named("a", "7", false)), start)
	nodes.OnUpdate(named("a", "3", true), named("a", "7", false))
	require.Equal(t, [2]int{3, 2}, told[3], "what was read before the watch said it is told as well")
	for _, name := range []string{"a", "b", "c"} {
		nodes.OnDelete(named(name, "8", true))
	}
	require.Equal(t, [][2]int{{2, 2}, {0, 0}}, told[4:], "no nodes are not all nodes")
}

func TestG18ABudgetThatAllowsMoreIsTold(t *testing.T) {
	t.Parallel()
	tr, budgets := tracker.New(), &source{}
	p := tracker.PodOf(pod("1", "1"))
	tr.SetPod(p)
	tr.SetNode(tracker.Node{Name: p.NodeName, UID: "n", ResourceVersion: "1", Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}}, start)
	feed := informer.NewBudgetFeed(tr)
	var told [][]tracker.Key
	feed.OnBudget(func(keys []tracker.Key) { told = append(told, keys) })
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
