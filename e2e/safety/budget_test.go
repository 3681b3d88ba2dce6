package safety

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// slack is by how much pods may be slower than the pace.
const slack = 0.1

// stall is for how long a machine may have something else to do while pods leave, which
// is not made good for. Pods that wait for others would need as long as all that leave.
const stall = 6 * time.Second

func TestG18BudgetsHoldAtFullPaceAndNobodyElseWaits(t *testing.T) {
	const key = prefix + "g18"
	// With a burst that is far smaller than what leaves while an API server that is slow
	// answers, it would be the answers that are measured.
	limit := pace{perSecond: 40, burst: 40}
	namespace := namespaceOf(t)
	govern(t, "g18", key, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Method = v1alpha1.EvictionMethodEvict
		spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: int32(limit.perSecond), Burst: int32(limit.burst)}
	})
	c := newCrowds(number(t, "TOLLGATE_SAFETY_PODS", podsBriefly), number(t, "TOLLGATE_SAFETY_GUARDED", guardedBriefly))
	created := c.create(t, namespace)
	c.guard(t, namespace)
	require.NoError(t, shared.AddNodes(t.Context(), "refuge"))
	t.Cleanup(func() {
		require.NoError(t, clientOf(t).CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), "refuge", metav1.DeleteOptions{}))
	})
	w := watchPods(t, namespace, c.floors())

	taint(t, key, allNodes()...)
	waitMoved(t, namespace, c.moved)
	waitLeft(t, w, c.blocked()+c.moved)

	left := waitDepartures(t, namespace, c.pods-c.blocked())
	requireFree(t, c, limit, left)
	least := w.requireUnbroken(t)
	require.Equal(t, c.some-c.mayGo(), least[crowdSome], "all left that could")
	require.Equal(t, c.none, least[crowdNone])
	t.Logf("fewest healthy pods: %v of the floors %v; evictions that budgets refused: %d, that several budgets refused: %d",
		least, c.floors(), refused(t, namespace, 429), refused(t, namespace, 500))
	for name, uid := range c.stay(created, left) {
		pod, err := clientOf(t).CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, uid, pod.UID, name)
	}
	waitMetric(t, float64(c.blocked()), "tollgate_evictions_held", `reason="budget"`)
	// Which pods of crowdSome stay is chance: those on one node may all have left.
	held, err := clientOf(t).CoreV1().Pods(namespace).Get(t.Context(), crowdNone+"-0", metav1.GetOptions{})
	require.NoError(t, err)
	waitEvent(t, metav1.NamespaceDefault, held.Spec.NodeName, "EvictionHeld", "PodDisruptionBudgets do not let them go")

	w.relax()
	began := time.Now()
	c.relax(t, namespace)
	waitLeft(t, w, c.moved)
	t.Logf("%d pods left %s after their budgets allowed it", c.blocked(), time.Since(began).Round(time.Millisecond))
	// One budget is asked by a few at a time.
	most := limit.takes(c.blocked()) + time.Duration(c.some)*100*time.Millisecond + 10*time.Second
	require.Less(t, time.Since(began), most, "that is told, and not found out by trying")
	all := waitDepartures(t, namespace, c.pods) // Everybody left once.
	require.Less(t, limit.excess(all), 1.0, "the pace holds")
	require.False(t, slices.ContainsFunc(all, func(d departure) bool { return !d.evicted }), "nobody is deleted past a budget")
	waitMetric(t, 0, "tollgate_evictions_held")
}

// requireFree makes sure that who has no budget left at the pace, not faster, and not
// slower because others could not leave.
func requireFree(t *testing.T, c *crowds, limit pace, left []departure) {
	t.Helper()
	last := 0
	free := 0
	for i := range left {
		if strings.HasPrefix(left[i].pod, crowdFree) {
			last = i
			free++
		}
	}
	require.Equal(t, c.free, free)
	took, takes := left[last].at.Sub(left[0].at), limit.takes(last+1)
	excess, answer := limit.excess(left), meanAnswer(left)
	t.Logf("%d pods without a budget left in %s, the last as number %d of all, which takes %s at the pace; ahead of the pace by at most %.1f pods; an answer took %s",
		free, took.Round(time.Millisecond), last+1, takes, excess, answer.Round(time.Millisecond))
	require.Less(t, excess, 1.0, "the pace holds")
	require.Less(t, took, time.Duration(float64(takes)*(1+slack))+stall+slowness(takes, answer), "nobody waits for those who cannot leave")
}

// slowness is what an API server that is slow costs: the nodes are read anew every 5 s,
// and nobody leaves until they have been.
func slowness(takes, answer time.Duration) time.Duration {
	reads := 2 + takes.Seconds()/5
	return time.Duration(float64(answer) * reads)
}

// waitLeft waits until the witness has seen all but so many pods leave, and no budget
// broken.
func waitLeft(t *testing.T, w *witness, want int) {
	t.Helper()
	eventually(t, "pods left", func(context.Context) error {
		w.requireUnbroken(t)
		if left := w.left(); left != want {
			return fmt.Errorf("%d are left, not %d", left, want)
		}
		return nil
	})
}

// waitMoved waits until the pods of the ReplicaSet are ready on the node without a
// taint.
func waitMoved(t *testing.T, namespace string, want int) {
	t.Helper()
	client := clientOf(t).CoreV1().Pods(namespace)
	eventually(t, "pods of the ReplicaSet moved", func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: crowdLabel + "=" + crowdMoved})
		if err != nil {
			return err
		}
		there := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) && list.Items[i].Spec.NodeName == "refuge" {
				there++
			}
		}
		if there != want || len(list.Items) != want {
			return fmt.Errorf("%d of %d are there", there, len(list.Items))
		}
		return nil
	})
}

// stay returns those of the pods that were created who have to be there still.
func (c *crowds) stay(created map[string]types.UID, left []departure) map[string]types.UID {
	stay := map[string]types.UID{}
	gone := names(left)
	for name, uid := range created {
		if !slices.Contains(gone, name) {
			stay[name] = uid
		}
	}
	return stay
}
