package compatibility

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// tolerationsAreJudged shows that a TolerationPolicy decides who may tolerate a taint.
func tolerationsAreJudged(t *testing.T) {
	t.Helper()
	sample(t, "tolerationpolicy.yaml")
	ready(t, "tolerationpolicies/dedicated")
	namespace(t, "banana", nil)
	namespace(t, "apple", nil)
	asks := func(namespace string, tolerations ...corev1.Toleration) error {
		_, err := tenant(t).CoreV1().Pods(namespace).Create(t.Context(), pod("p", "", tolerations...), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	key := tolerates("dedicated.example.com/gpu")
	require.NoError(t, asks("banana", key))
	require.NoError(t, asks("apple"))
	requireDenied(t, asks("apple", key), "dedicated nodes belong to the teams that paid for them")
	requireDenied(t, asks("apple", corev1.Toleration{Operator: corev1.TolerationOpExists}), "dedicated nodes belong")
}

// dedicatedNodes shows that nodes are born with their taints, that their pods are steered to
// them, and that others may not set such a taint.
func dedicatedNodes(t *testing.T) {
	t.Helper()
	const node = "dedicated"
	sample(t, "dedicated-nodes.yaml")
	ready(t, "placementpolicies/dedicated-banana")
	namespace(t, "banana", nil)
	want := corev1.Taint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}

	nodes := admin(t).CoreV1().Nodes()
	born, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"pool": "banana", corev1.LabelHostname: node}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nodes.Delete(afterwards(t), node, metav1.DeleteOptions{})) })
	require.True(t, hasTaint(born, want), "%v", born.Spec.Taints)

	steered, err := tenant(t).CoreV1().Pods("banana").Create(t.Context(), pod("p", ""), metav1.CreateOptions{DryRun: dryRun})
	require.NoError(t, err)
	require.Equal(t, "banana", steered.Spec.NodeSelector["pool"])
	require.Contains(t, steered.Spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule})

	_, err = tenant(t).CoreV1().Nodes().Patch(t.Context(), controlplane.NodeName(1), types.MergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"dedicated","value":"banana","effect":"NoSchedule"}]}}`), metav1.PatchOptions{DryRun: dryRun})
	requireDenied(t, err, "alice may not add this taint: nodes of the pool banana are dedicated to team banana")
}

func hasTaint(node *corev1.Node, want corev1.Taint) bool {
	for _, taint := range node.Spec.Taints {
		if taint.MatchTaint(&want) && taint.Value == want.Value {
			return true
		}
	}
	return false
}

// gatesAreHeld shows that pods get scheduling gates, and that only their owner opens them.
func gatesAreHeld(t *testing.T) {
	t.Helper()
	const gate = "queue.example.com/admission"
	sample(t, "queue-gates.yaml")
	ready(t, "placementpolicies/queue")
	ready(t, "gatepolicies/queue")
	namespace(t, "queued", map[string]string{"queue": "managed"})
	pods := tenant(t).CoreV1().Pods("queued")
	held, err := pods.Create(t.Context(), pod("p", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []corev1.PodSchedulingGate{{Name: gate}}, held.Spec.SchedulingGates)
	open := []byte(`{"spec":{"schedulingGates":null}}`)
	_, err = pods.Patch(t.Context(), "p", types.MergePatchType, open, metav1.PatchOptions{DryRun: dryRun})
	requireDenied(t, err, "the queue decides when and where this pod runs")
	owner := clientFor(t, shared.As("system:serviceaccount:queue-system:queue-controller",
		"system:serviceaccounts", "system:serviceaccounts:queue-system"))
	_, err = owner.CoreV1().Pods("queued").Patch(t.Context(), "p", types.MergePatchType, open, metav1.PatchOptions{})
	require.NoError(t, err)
}

// nodesEvictOnTime shows that a NoExecute taint of a node gets its time, and that pods leave
// when their tolerations are over.
func nodesEvictOnTime(t *testing.T) {
	t.Helper()
	const (
		key     = "compatibility.example.com/broken"
		seconds = 3
	)
	node, in := controlplane.NodeName(1), namespace(t, "evicted", nil)
	create(t, in, pod("now", node), pod("soon", node, tolerates(key, seconds)), pod("stays", node, tolerates(key)))
	added := taint(t, node, key).TimeAdded
	require.NotNil(t, added, "the time is written at admission")
	// Between that and the next is less time than a busy machine may take to look.
	eventually(t, "the pod that does not tolerate it leaves", func(ctx context.Context) error {
		left, err := alive(ctx, admin(t), in)
		if err == nil && slices.Contains(left, "now") {
			err = errNotYet
		}
		return err
	})
	waitLeft(t, in, "stays")
	require.GreaterOrEqual(t, time.Since(added.Time), seconds*time.Second, "nobody leaves early")
}

// budgetsAreAsked shows that evictions go by an EvictionPolicy: by the Eviction API, which
// a PodDisruptionBudget may refuse.
func budgetsAreAsked(t *testing.T) {
	t.Helper()
	node, in := controlplane.NodeName(2), namespace(t, "gentle", nil)
	sample(t, "gentle-eviction.yaml")
	ready(t, "evictionpolicies/gentle")
	budgets := admin(t).PolicyV1().PodDisruptionBudgets(in)
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guards"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}, MinAvailable: new(intstr.FromInt32(1)),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	create(t, in, pod("guarded", node), pod("unguarded", node))
	eventually(t, "the budget counts its pod", func(ctx context.Context) error {
		budget, err := budgets.Get(ctx, "guards", metav1.GetOptions{})
		if err == nil && (budget.Status.CurrentHealthy != 1 || budget.Status.ObservedGeneration != budget.Generation) {
			err = errNotYet
		}
		return err
	})
	taint(t, node, "maintenance.example.com/kernel")
	waitLeft(t, in, "guarded")
	becomes(t, "it is said what holds the pod", func() error {
		out, err := command(t, "evictions", "-n", in)
		if err != nil {
			return err
		}
		return mentions(out, "guarded", "guards")
	})
	require.NoError(t, budgets.Delete(t.Context(), "guards", metav1.DeleteOptions{}))
	waitLeft(t, in)
}

// limitsHold shows the preview of a taint, that a limit stops it, and that an
// EvictionApproval lets it through.
func limitsHold(t *testing.T) {
	t.Helper()
	const key = "compatibility.example.com/crowd"
	node, in := controlplane.NodeName(3), namespace(t, "crowd", nil)
	apply(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: compatibility-limit}
spec:
  taints: [{key: `+key+`, effects: [NoExecute]}]
  setters: [{subjects: [{kind: Group, name: "system:authenticated"}]}]
  limits: {maxAffectedPods: 1, window: 10m}
`)
	ready(t, "taintpolicies/compatibility-limit")
	create(t, in, pod("a", node), pod("b", node))
	arguments := []string{"taint", "node", node, key + "=:NoExecute"}
	// A replica may hear of the pods a moment after they are created.
	becomes(t, "more than the limit is refused", func() error {
		out, err := kubectl(t, append(arguments, "--dry-run=server")...)
		if err == nil {
			return errNotYet
		}
		return mentions(out, "2 pods", "compatibility-limit")
	})
	t.Cleanup(func() { mustKubectl(t, "taint", "node", node, key+"-") })
	apply(t, `
apiVersion: tollgate.dev/v1alpha1
kind: EvictionApproval
metadata: {name: compatibility-approval}
spec: {node: `+node+`, taint: {key: `+key+`, effect: NoExecute}, maxPods: 2, expiresAfter: 1h}
`)
	becomes(t, "what is approved is let through, with a preview", func() error {
		out, err := kubectl(t, arguments...)
		if err != nil {
			return err
		}
		return mentions(out, "Warning", "evicts 2 pods")
	})
	waitLeft(t, in)
}
