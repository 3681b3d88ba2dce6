package policies

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

// patchPod writes a merge patch of the spec of a pod as somebody.
func (p *person) patchPod(t *testing.T, namespace, name string, spec map[string]any) error {
	t.Helper()
	content, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(t, err)
	_, err = p.CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, content, metav1.PatchOptions{})
	return err
}

func TestTheStoryOfAQueueThatOpensItsGate(t *testing.T) {
	const gate = "queue.example.com/admission"
	node(t, "queue-flavor", map[string]string{"queue.example.com/flavor": "spot"})
	sample(t, "queue-gates.yaml")
	namespaceWith(t, "queued", map[string]string{"queue": "managed"})
	alice, queue := tenant(t, "alice"), serviceAccount(t, "queue-system", "queue-controller")
	open, to := map[string]any{"schedulingGates": nil}, map[string]any{"nodeSelector": map[string]any{"queue.example.com/flavor": "spot"}}
	tightenAndOpen := map[string]any{"schedulingGates": nil, "nodeSelector": to["nodeSelector"]}

	pod := alice.createPod(t, "queued", podNamed("job"))
	t.Run("a pod is given the gate when it is created", func(t *testing.T) {
		require.Equal(t, []corev1.PodSchedulingGate{{Name: gate}}, pod.Spec.SchedulingGates)
		require.Equal(t, corev1.PodReasonSchedulingGated, podNow(t, "queued", "job").Status.Conditions[0].Reason)
	})
	t.Run("its user cannot open it", func(t *testing.T) {
		requireRefused(t, alice.patchPod(t, "queued", "job", open), policy.GateNotOwned,
			"GatePolicy/queue", "spec.schedulingGates", gate, "the queue decides when and where this pod runs")
	})
	t.Run("nor say where it goes while it waits", func(t *testing.T) {
		requireRefused(t, alice.patchPod(t, "queued", "job", to), policy.GatedPodNotOwned, "GatePolicy/queue", "spec.nodeSelector")
	})
	t.Run("nor both at once", func(t *testing.T) {
		requireRefused(t, alice.patchPod(t, "queued", "job", tightenAndOpen), policy.GateNotOwned, "GatePolicy/queue")
	})
	t.Run("nor trade it for another", func(t *testing.T) {
		err := alice.patchPod(t, "queued", "job", map[string]any{"schedulingGates": []any{map[string]any{"name": "other.example.com/x"}}})
		require.Error(t, err)
	})
	t.Run("a ServiceAccount of that name from elsewhere is not the queue", func(t *testing.T) {
		requireRefused(t, serviceAccount(t, "queued", "queue-controller").patchPod(t, "queued", "job", open), policy.GateNotOwned)
	})
	t.Run("labels and deletion are its user's own", func(t *testing.T) {
		_, err := alice.CoreV1().Pods("queued").Patch(t.Context(), "job", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.NoError(t, alice.CoreV1().Pods("queued").Delete(t.Context(), "job", metav1.DeleteOptions{DryRun: dryRun}))
	})
	t.Run("SD-04 the queue tightens and opens by one update, and the scheduler puts the pod there", func(t *testing.T) {
		require.NoError(t, queue.patchPod(t, "queued", "job", tightenAndOpen))
		require.Equal(t, "queue-flavor", waitRuns(t, "queued", "job"))
	})
	t.Run("SD-06 not even the queue widens what the user asked for", func(t *testing.T) {
		steered := podNamed("steered")
		steered.Spec.NodeSelector = map[string]string{"queue.example.com/flavor": "on-demand"}
		alice.createPod(t, "queued", steered)
		require.Error(t, queue.patchPod(t, "queued", "steered", to))
	})
	t.Run("a pod made by a controller waits, too", func(t *testing.T) {
		_, err := alice.BatchV1().Jobs("queued").Create(t.Context(), jobOf("batch"), metav1.CreateOptions{})
		require.NoError(t, err)
		name := waitPodOf(t, "queued", "batch.kubernetes.io/job-name=batch")
		require.Equal(t, []corev1.PodSchedulingGate{{Name: gate}}, podNow(t, "queued", name).Spec.SchedulingGates)
		require.NoError(t, queue.patchPod(t, "queued", name, open))
	})
}

func TestWhenTheLastGateGoesTheWholePodIsJudgedAnew(t *testing.T) {
	const key, gate = "regate.example.com/x", "regate.example.com/gate"
	namespaceWith(t, "regate", map[string]string{"regate.example.com/tier": "system"})
	grants := `
kind: TolerationPolicy
metadata: {name: regate}
spec:
  taints: [{key: regate.example.com/x}]
  grants:
  - namespaceSelector: {matchLabels: {regate.example.com/tier: system}}
`
	enforce(t, grants)
	alice, opener := tenant(t, "alice"), tenant(t, "opener")
	open := map[string]any{"schedulingGates": nil}
	for _, name := range []string{"early", "late"} {
		pod := gated(podNamed(name, exists(key, "")), gate, "regate.example.com/other")
		alice.createPod(t, "regate", pod)
	}
	t.Run("it opens while the namespace is granted", func(t *testing.T) {
		require.NoError(t, opener.patchPod(t, "regate", "early", open))
	})
	_, err := alice.CoreV1().Namespaces().Patch(t.Context(), "regate", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"regate.example.com/tier":null}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	t.Run("not the last gate: nothing is judged anew", func(t *testing.T) {
		require.NoError(t, opener.patchPod(t, "regate", "late", map[string]any{"schedulingGates": []any{map[string]any{"name": gate}}}))
	})
	t.Run("the last: it is not granted any more", func(t *testing.T) {
		requireRefused(t, opener.patchPod(t, "regate", "late", open), policy.TolerationNotGranted, "TolerationPolicy/regate", "spec.tolerations[0]")
	})
	t.Run("who was granted by name stays so, whoever opens the gate", func(t *testing.T) {
		change(t, "TolerationPolicy", "regate", func(spec map[string]any) {
			spec["grants"] = []any{map[string]any{"subjects": []any{map[string]any{"kind": "User", "name": "alice"}}}}
		})
		require.NoError(t, opener.patchPod(t, "regate", "late", open))
	})
}

func TestC26OfTwoGatePoliciesBothMustNameWhoOpens(t *testing.T) {
	namespaces(t, "two-owners")
	enforce(t, `
kind: GatePolicy
metadata: {name: two-a}
spec: {gates: [two.example.com/*], owners: [{kind: User, name: anna}, {kind: User, name: both}]}
---
kind: GatePolicy
metadata: {name: two-b}
spec: {gates: [two.example.com/gate], owners: [{kind: User, name: bert}, {kind: User, name: both}]}
`)
	tenant(t, "alice").createPod(t, "two-owners", gated(podNamed("pod"), "two.example.com/gate"))
	open := map[string]any{"schedulingGates": nil}
	requireRefused(t, tenant(t, "anna").patchPod(t, "two-owners", "pod", open), policy.GateNotOwned, "GatePolicy/two-b")
	requireRefused(t, tenant(t, "bert").patchPod(t, "two-owners", "pod", open), policy.GateNotOwned, "GatePolicy/two-a")
	require.NoError(t, tenant(t, "both").patchPod(t, "two-owners", "pod", open))
}

func TestAPodThatIsMadeBeforeItsClaimWaitsBehindTheGate(t *testing.T) {
	const driver, namespace, gate = "early.gates.example.com", "gates-early", "early.gates.example.com/queue"
	namespaces(t, namespace)
	deviceClass(t, driver, dra.Device("gpu-0"))
	enforce(t, `
kind: PlacementPolicy
metadata: {name: gates-early}
spec:
  match: {deviceClasses: [early.gates.example.com]}
  pod: {schedulingGates: [early.gates.example.com/queue]}
`)
	alice := tenant(t, "alice")
	alice.heard.take()
	alice.createPod(t, namespace, dra.Pod("early", "later"))
	requireWarned(t, alice.heard.take(), "ResourceClaim later does not exist")
	stored, err := admin(t).CoreV1().Pods(namespace).Get(t.Context(), "early", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []corev1.PodSchedulingGate{{Name: gate}}, stored.Spec.SchedulingGates)
}
