package nodetaints

import (
	"errors"
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
)

// pairing returns a world and a PairingController for it.
func pairing(window bool) (*world, *PairingController) {
	w := newWorld()
	w.current = policiesWithWindow("rack")
	return w, NewPairing(w.base(), PairingOptions{Nodes: nodeAPI{world: w}, Window: window, Metrics: NewPairingMetrics(prometheus.NewPedanticRegistry())})
}

func pairedNode(t *testing.T, name string, texts ...string) *corev1.Node {
	t.Helper()
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{Taints: taints(t, texts...)}}
}

func TestANodeHasATwinWhileItNeedsOne(t *testing.T) {
	w, c := pairing(true)
	w.set(pairedNode(t, "n", "rack=7:NoExecute"))
	step := func() {
		t.Helper()
		again, err := c.reconcile(t.Context(), "n")
		require.NoError(t, err)
		require.Zero(t, again)
	}
	step()
	require.Equal(t, []string{"rack=7:NoExecute", "rack=7:NoSchedule"}, w.taintsOf("n"))
	calls, events := w.requests()
	require.Equal(t, []string{"get n", "patch n"}, calls)
	require.Equal(t, []string{"Node/n Normal NoSchedulePaired: Added the taint rack=7:NoSchedule, which keeps pods from coming back that are given time before they are evicted"}, events)
	step()
	calls, _ = w.requests()
	require.Empty(t, calls, "nothing is asked while it is right")

	untainted := w.nodes["n"].DeepCopy()
	untainted.Spec.Taints = untainted.Spec.Taints[1:]
	w.set(untainted)
	step()
	require.Empty(t, w.taintsOf("n"))
	require.NotContains(t, w.nodes["n"].Annotations, v1alpha1.AnnotationTwins)
	_, events = w.requests()
	require.Equal(t, []string{"Node/n Normal NoSchedulePairRemoved: Removed the taint rack=7:NoSchedule: no pod is given time of a taint that it stood beside any more"}, events)
	require.InDelta(t, 1, testutil.ToFloat64(c.Metrics.WithLabelValues(operationAdd)), 0)
	require.InDelta(t, 1, testutil.ToFloat64(c.Metrics.WithLabelValues(operationRemove)), 0)
}

func TestWhatIsReadDecides(t *testing.T) {
	t.Run("what is known lags behind", func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		w.staleCache = true
		w.set(pairedNode(t, "n"))
		_, err := c.reconcile(t.Context(), "n")
		require.NoError(t, err)
		calls, _ := w.requests()
		require.Equal(t, []string{"get n"}, calls)
	})
	t.Run("what others write between the read and the write stays", func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		w.interleave = func() { w.set(pairedNode(t, "n", "other:NoSchedule")) }
		_, err := c.reconcile(t.Context(), "n")
		require.Error(t, err)
		require.Equal(t, []string{"other:NoSchedule"}, w.taintsOf("n"))
		_, events := w.requests()
		require.Empty(t, events)
	})
	t.Run("a node that was replaced is another one", func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		w.interleave = func() {
			w.mu.Lock()
			delete(w.nodes, "n")
			w.mu.Unlock()
			another := pairedNode(t, "n")
			another.UID = "another"
			w.set(another)
		}
		_, err := c.reconcile(t.Context(), "n")
		require.Error(t, err)
		require.Empty(t, w.taintsOf("n"))
	})
	t.Run("a node that is gone needs nothing", func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		delete(w.nodes, "n")
		_, err := c.reconcile(t.Context(), "n")
		require.NoError(t, err)
		_, err = c.reconcile(t.Context(), "never-there")
		require.NoError(t, err)
	})
	t.Run("a node that is on its way out neither", func(t *testing.T) {
		w, c := pairing(true)
		leaving := pairedNode(t, "n", "rack:NoExecute")
		leaving.DeletionTimestamp = new(metav1.Now())
		w.set(leaving)
		_, err := c.reconcile(t.Context(), "n")
		require.NoError(t, err)
		calls, _ := w.requests()
		require.Empty(t, calls)
	})
	t.Run("a fault is tried again", func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		w.err = errors.New("away")
		_, err := c.reconcile(t.Context(), "n")
		require.ErrorContains(t, err, "read node n: away")
	})
	t.Run("policies that were not read yet are waited for", func(t *testing.T) {
		w, c := pairing(true)
		w.current = nil
		w.set(pairedNode(t, "n", "rack:NoExecute"))
		again, err := c.reconcile(t.Context(), "n")
		require.NoError(t, err)
		require.Equal(t, policiesPause, again)
	})
}

func TestTheControllerFollowsNodesAndPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := pairing(true)
		w.set(pairedNode(t, "before", "rack:NoExecute"))
		w.set(pairedNode(t, "other", "tor:NoExecute"))
		lead(t, c.Start, func() {
			rest(time.Second)
			require.Equal(t, []string{"rack:NoExecute", "rack:NoSchedule"}, w.taintsOf("before"))
			require.Equal(t, []string{"tor:NoExecute"}, w.taintsOf("other"))

			w.set(pairedNode(t, "later", "rack:NoExecute"))
			rest(2 * time.Second)
			require.Equal(t, []string{"rack:NoExecute", "rack:NoSchedule"}, w.taintsOf("later"))

			// The policy changes while this replica does not lead.
			w.mu.Lock()
			w.current, w.leads = policiesWithWindow("tor"), false
			w.mu.Unlock()
			w.changed <- struct{}{}
			rest(2 * time.Second)
			require.Equal(t, []string{"tor:NoExecute"}, w.taintsOf("other"))
			w.mu.Lock()
			w.leads = true
			w.mu.Unlock()
			rest(2 * time.Second)
			require.Equal(t, []string{"tor:NoExecute", "tor:NoSchedule"}, w.taintsOf("other"))
			require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("before"))
			require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("later"))
		})
	})
}

func TestAnotherModeRemovesWhatWasAdded(t *testing.T) {
	w, c := pairing(true)
	w.set(pairedNode(t, "n", "rack:NoExecute"))
	_, err := c.reconcile(t.Context(), "n")
	require.NoError(t, err)
	c.Window = false
	_, err = c.reconcile(t.Context(), "n")
	require.NoError(t, err)
	require.Equal(t, []string{"rack:NoExecute"}, w.taintsOf("n"))
}
