package explain

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/checks"
)

// node returns a node with a zone and taints in YAML.
func node(name, zone, taints string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/hostname: %s, zone: %s}}
spec: {taints: [%s]}
`, name, name, zone, taints)
}

// pod returns a pod with more of its spec and its status.
func pod(name, spec, status string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: ml, creationTimestamp: "2026-03-01T11:55:00Z", labels: {app: web}}
spec: {containers: [{name: c, image: i}], %s}
status: {%s}
`, name, spec, status)
}

// unschedulable is a status with what the scheduler says.
func unschedulable(message string) string {
	return fmt.Sprintf(`conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: %q}]`, message)
}

// onN is a spec of a pod that is on node n-1 since before its taints.
const (
	onN     = `nodeName: n-1`
	running = `phase: Running, startTime: "2026-03-01T11:55:00Z"`
	sick    = `{key: sick, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}`
)

func tolerating(list string) string { return `tolerations: [` + list + `]` }

const sickFor = `{key: sick, operator: Exists, effect: NoExecute, tolerationSeconds: %d}`

func TestPodNamesTheTrueReason(t *testing.T) {
	t.Parallel()
	const (
		x = `{key: dedicated, value: x, effect: NoSchedule}`
		y = `{key: dedicated, value: blue, effect: NoSchedule}`
	)
	untolerated := unschedulable("0/2 nodes are available: 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
	policy := func(spec, status string) string {
		return "apiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: gentle, uid: u}\nspec: {taints: [{key: sick}], " + spec + "}\nstatus: {held: 0, " + status + "}\n"
	}
	const budget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: ml}
spec: {selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}
`
	for name, test := range map[string]struct {
		world  []string
		state  State
		causes []CauseKind
		answer string
	}{
		"all nodes have an untolerated taint": {
			[]string{node("a", "1", x), node("b", "2", x), pod("p", "", untolerated)},
			Pending,
			[]CauseKind{CauseTaint},
			"Pending: all 2 nodes have taints that it does not tolerate: dedicated=x:NoSchedule (2 nodes).",
		},
		"the taint has another value than the toleration": {
			[]string{node("a", "1", y), pod("p", tolerating(`{key: dedicated, value: x}`), untolerated)},
			Pending,
			[]CauseKind{CauseTaint},
			"Pending: the only node has taints that it does not tolerate: dedicated=blue:NoSchedule (node a; its toleration dedicated=x has another value).",
		},
		"the toleration is for another effect": {
			[]string{node("a", "1", x), pod("p", tolerating(`{key: dedicated, operator: Exists, effect: NoExecute}`), untolerated)},
			Pending,
			[]CauseKind{CauseTaint},
			"Pending: the only node has taints that it does not tolerate: dedicated=x:NoSchedule (node a; its toleration dedicated:NoExecute is for the effect NoExecute).",
		},
		"the operator Lt does not count": {
			[]string{node("a", "1", `{key: sla, value: "5", effect: NoSchedule}`), pod("p", tolerating(`{key: sla, operator: Lt, value: "10"}`), untolerated)},
			Pending,
			[]CauseKind{CauseTaint},
			"Pending: the only node has taints that it does not tolerate: sla=5:NoSchedule (node a; its toleration sla<10 has the operator Lt, which Tollgate does not honour (eviction.comparisonOperators is off)).",
		},
		"a cordoned node": {
			[]string{node("a", "1", `{key: node.kubernetes.io/unschedulable, effect: NoSchedule}`), pod("p", "", unschedulable("0/1 nodes are available: 1 node(s) were unschedulable."))},
			Pending,
			[]CauseKind{CauseCordon},
			"Pending: the only node is cordoned (a).",
		},
		"no node matches the selector": {
			[]string{node("a", "1", x), pod("p", "nodeSelector: {zone: \"3\"}", unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint(s)."))},
			Pending,
			[]CauseKind{CauseAffinity},
			"Pending: the only node does not match its node selector zone=3.",
		},
		"taints of nodes that it does not want are no reason": {
			[]string{node("a", "1", x), node("b", "2", y), pod("p", "nodeSelector: {zone: \"2\"}", untolerated)},
			Pending,
			[]CauseKind{CauseTaint},
			"Pending: the only node that matches its node selector zone=2 has taints that it does not tolerate: dedicated=blue:NoSchedule (node b).",
		},
		"cpu is the scheduler's to know, and the taint of the other node comes second": {
			[]string{node("a", "1", x), node("b", "2", ""), pod("p", "", unschedulable("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available."))},
			Pending,
			[]CauseKind{CauseScheduler, CauseTaint},
			"Pending: the scheduler says: 1 Insufficient cpu; 1 of 2 nodes has taints that it does not tolerate: dedicated=x:NoSchedule (node a).",
		},
		"an unbound volume": {
			[]string{node("a", "1", ""), pod("p", "", unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"))},
			Pending,
			[]CauseKind{CauseScheduler},
			"Pending: the scheduler says: pod has unbound immediate PersistentVolumeClaims.",
		},
		"an empty cluster": {
			[]string{pod("p", "", unschedulable("no nodes available to schedule pods"))},
			Pending,
			[]CauseKind{CauseNoNodes},
			"Pending: the cluster has no node.",
		},
		"a scheduler that says nothing": {
			[]string{node("a", "1", ""), pod("p", "schedulerName: mine", "")},
			Pending,
			[]CauseKind{CauseWaiting},
			"Pending: nothing keeps it from 1 node (a), and the scheduler mine has not said anything of it since it was made 5m ago.",
		},
		"a taint that has gone meanwhile": {
			[]string{node("a", "1", ""), pod("p", "", untolerated)},
			Pending,
			[]CauseKind{CauseWaiting},
			"Pending: nothing that is known here keeps it from 1 node (a) any more, and the scheduler has not looked again yet.",
		},
		"the taints have gone, and there are fewer domains than minDomains": {
			[]string{
				node("a", "1", ""), node("b", "2", x), pod("other", "nodeName: a", running),
				pod("p", "nodeSelector: {zone: \"1\"}, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, minDomains: 2, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]", untolerated),
			},
			Pending,
			[]CauseKind{CauseSpread},
			"Pending: topology spread keeps it from 1 node (a): one more in zone 1 (1 pod) would be more than maxSkew 1 while there are fewer domains (1) than minDomains 2.",
		},
		"topology spread that cannot be read": {
			[]string{
				node("a", "1", ""),
				pod("p", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: Wrong}]}}]", untolerated),
			},
			Pending,
			[]CauseKind{CauseScheduler},
			"Pending: the scheduler says: 0/2 nodes are available: 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
		},
		"two gates, one of which is guarded": {
			[]string{`
apiVersion: tollgate.dev/v1alpha1
kind: GatePolicy
metadata: {name: queue}
spec: {gates: [example.com/queue], owners: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: queue}]}
`, node("a", "1", x), pod("p", "schedulingGates: [{name: example.com/queue}, {name: b}]", `conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated, message: "Scheduling is blocked due to non-empty scheduling gates"}]`)},
			Pending,
			[]CauseKind{CauseGate},
			"Pending: it waits behind 2 scheduling gates, and the scheduler does not look at it: example.com/queue (GatePolicy/queue: allowed to group queue), b (no GatePolicy guards it: whoever may update the pod may remove it).",
		},
		"spread held up by a tainted domain": {
			[]string{
				node("a", "1", ""), node("b", "2", x), pod("other", "nodeName: a", running),
				pod("p", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]",
					unschedulable("0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s).")),
			},
			Pending,
			[]CauseKind{CauseSpread, CauseTaint},
			"Pending: topology spread keeps it from 1 node (a): one more in zone 1 (1 pod) would be more than maxSkew 1 ahead of the emptiest, which has 0; it can never go to 2, where taints keep it off (dedicated=x:NoSchedule), and nodeTaintsPolicy: Honor would leave it out; 1 of 2 nodes has taints that it does not tolerate: dedicated=x:NoSchedule (node b).",
		},
		"no taint": {
			[]string{node("n-1", "1", ""), pod("p", onN, running)},
			Staying,
			[]CauseKind{CauseUntainted},
			"Stays on node n-1: no taint with effect NoExecute holds for it.",
		},
		"a taint that keeps others off": {
			[]string{node("n-1", "1", x), pod("p", onN, running)},
			Staying,
			[]CauseKind{CauseUntainted},
			"Stays on node n-1: no taint with effect NoExecute holds for it.",
		},
		"containers that have not started": {
			[]string{node("n-1", "1", ""), pod("p", onN, "phase: Pending")},
			Staying,
			[]CauseKind{CauseUntainted, CauseStarting},
			"Stays on node n-1: no taint with effect NoExecute holds for it; its containers have not started, which is a matter of the kubelet.",
		},
		"tolerated for ever": {
			[]string{node("n-1", "1", sick), pod("p", onN+", "+tolerating(`{key: sick, operator: Exists}`), running)},
			Staying,
			[]CauseKind{CauseTolerated},
			"Stays on node n-1: it tolerates for ever what would make it leave: sick:NoExecute of its node (toleration sick).",
		},
		"tolerated for a while": {
			[]string{node("n-1", "1", sick), pod("p", onN+", "+tolerating(fmt.Sprintf(sickFor, 120)), running)},
			Leaving,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 in 61s: taint sick:NoExecute of node n-1 is tolerated for a while, which ends then (toleration sick:NoExecute for 120s).",
		},
		"the toleration is over": {
			[]string{node("n-1", "1", sick), pod("p", onN+", "+tolerating(fmt.Sprintf(sickFor, 30)), running)},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 29s ago): taint sick:NoExecute of node n-1 was tolerated for a while, which is over (toleration sick:NoExecute for 30s).",
		},
		"not tolerated": {
			[]string{node("n-1", "1", sick), pod("p", onN, running)},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 60s ago): taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"a taint of the future": {
			[]string{node("n-1", "1", `{key: sick, effect: NoExecute, timeAdded: "2026-03-01T12:10:00Z"}`), pod("p", onN, running)},
			Leaving,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 in 10m: taint sick:NoExecute of node n-1 counts from then on, and is not tolerated.",
		},
		"protected": {
			[]string{policy("protect: {podSelector: {matchLabels: {app: web}}}", ""), node("n-1", "1", sick), pod("p", onN, running)},
			Held,
			[]CauseKind{CauseProtected},
			"Stays on node n-1: EvictionPolicy/gentle protects it from taint sick:NoExecute of node n-1, because of which it would leave.",
		},
		"paused": {
			[]string{policy("paused: true", ""), node("n-1", "1", sick), pod("p", onN, running)},
			Held,
			[]CauseKind{CausePaused, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: EvictionPolicy/gentle is paused; taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"held by a breaker": {
			[]string{policy("breaker: {maxPods: 1, window: 1m}", `breaker: {tripped: "2026-03-01T11:59:30.000000Z"}`), node("n-1", "1", sick), pod("p", onN, running)},
			Held,
			[]CauseKind{CauseBreaker, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: the breaker of EvictionPolicy/gentle has let as many pods go as it may, until an EvictionApproval or the end of its window; taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"blocked by a budget": {
			[]string{policy("method: Evict, deleteAfter: 2m", ""), budget, node("n-1", "1", sick), pod("p", onN, running)},
			Held,
			[]CauseKind{CauseBudget, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: PodDisruptionBudget web lets none of its pods go at the moment, and EvictionPolicy/gentle evicts with the method Evict; it is deleted in 60s all the same (deleteAfter); taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"a budget counts for nothing where pods are deleted": {
			[]string{policy("method: Delete", ""), budget, node("n-1", "1", sick), pod("p", onN, running)},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 60s ago): taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"paused, and not due yet": {
			[]string{policy("paused: true", ""), node("n-1", "1", sick), pod("p", onN+", "+tolerating(fmt.Sprintf(sickFor, 120)), running)},
			Held,
			[]CauseKind{CausePaused, CauseNodeTaint},
			"Held on node n-1, which it would have to leave in 61s: EvictionPolicy/gentle is paused; taint sick:NoExecute of node n-1 is tolerated for a while, which ends then (toleration sick:NoExecute for 120s).",
		},
		"one of two taints is under a paused policy": {
			[]string{policy("paused: true", ""), node("n-1", "1", sick+`, {key: torn, effect: NoExecute, timeAdded: "2026-03-01T11:59:30Z"}`), pod("p", onN, running)},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 30s ago): taint torn:NoExecute of node n-1 is not tolerated.",
		},
		"one of two taints is under a paused policy, and the other makes it leave later": {
			[]string{policy("paused: true", ""), node("n-1", "1", sick+`, {key: torn, effect: NoExecute, timeAdded: "2026-03-01T12:01:00Z"}`), pod("p", onN, running)},
			Held,
			[]CauseKind{CausePaused, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: EvictionPolicy/gentle is paused; it leaves in 60s all the same; taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"held by what only Tollgate can tell": {
			[]string{policy("method: Delete", ""), node("n-1", "1", sick), heldEvent("EvictionHeld", "looping", "", 10), pod("p", onN, running)},
			Held,
			[]CauseKind{CauseHeld, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: Tollgate says that it holds pods: " + checks.Looping.Explain("") + "; taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"held because all nodes are down": {
			[]string{node("n-1", "1", `{key: node.kubernetes.io/unreachable, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}`), pod("p", onN, running)},
			Held,
			[]CauseKind{CauseHeld, CauseNodeTaint},
			"Held on node n-1, which it had to leave 60s ago: Tollgate says that it holds pods: " + checks.NodesDown.Explain("") + "; taint node.kubernetes.io/unreachable:NoExecute of node n-1 is not tolerated.",
		},
		"a policy holds others because of the same taint": {
			[]string{node("n-1", "1", sick), heldEvent("EvictionHeld", "paused", "theirs", 10), pod("p", onN, running)},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 60s ago): taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"held no more": {
			[]string{
				node("n-1", "1", sick), heldEvent("EvictionHeld", "nodes_down", "", 10),
				heldEvent("EvictionReleased", "nodes_down", "", 12), pod("p", onN, running),
			},
			Due,
			[]CauseKind{CauseNodeTaint},
			"Has to leave node n-1 now (due 60s ago): taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"over": {
			[]string{node("n-1", "1", sick), pod("p", onN, "phase: Failed, reason: Evicted, message: low on disk")},
			Finished,
			[]CauseKind{CausePhase},
			"Over: its phase is Failed (Evicted: low on disk).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := worldOf(t, test.world...).Pod(t.Context(), "ml", "p")
			require.NoError(t, err)
			require.Equal(t, test.answer, got.Answer)
			require.Equal(t, test.state, got.State)
			kinds := make([]CauseKind, len(got.Causes))
			for i := range got.Causes {
				kinds[i] = got.Causes[i].Kind
			}
			require.Equal(t, test.causes, kinds)
		})
	}
}
