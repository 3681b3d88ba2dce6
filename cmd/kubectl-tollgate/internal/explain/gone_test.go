package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// event returns an event that is some seconds old.
func event(kind, name, namespace, uid, reason, message string, second int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: %s-%d-%s, namespace: default}
involvedObject: {kind: %s, name: %s, namespace: %q, uid: %q}
reason: %s
message: %q
lastTimestamp: "2026-03-01T11:59:%02dZ"
`, name, second, reason, kind, name, namespace, uid, reason, message, second)
}

// heldEvent returns the event by which Tollgate tells that pods are held because of taint sick of node n-1, or no longer.
func heldEvent(eventReason, reason, policy string, second int) string {
	return strings.Replace(event("Node", "n-1", "", "n", eventReason, "Holding 1 pod that has to leave because of taint sick:NoExecute: every node is not ready or unreachable", second), "namespace: default}",
		fmt.Sprintf("namespace: default, annotations: {tollgate.dev/held-taint: 'sick:NoExecute', tollgate.dev/held-reason: %q, tollgate.dev/held-policy: %q}}", reason, policy), 1)
}

// summary returns the event that tells an object that carries taints of evictions in sum.
func summary(kind, name, uid, reason, taints string, second int) string {
	return strings.Replace(event(kind, name, "", uid, reason, "Evicted 2 pods because of a NoExecute taint", second), "namespace: default}",
		fmt.Sprintf("namespace: default, annotations: {tollgate.dev/evicted-because: %q}}", taints+" of "+kind+" "+name), 1)
}

func ofP(reason, message string, second int) string {
	return event("Pod", "p", "ml", "p-uid", reason, message, second)
}

func TestPodThatIsGoneIsKnownFromEvents(t *testing.T) {
	t.Parallel()
	scheduled := ofP("Scheduled", "Successfully assigned ml/p to n-1", 1)
	marked := ofP("TaintManagerEviction", "Marking for deletion Pod ml/p", 30)
	for name, test := range map[string]struct {
		world  []string
		state  State
		kind   CauseKind
		answer string
	}{
		"by a taint of its node, and not by one of another": {
			[]string{
				scheduled, marked,
				summary("Node", "n-1", "n", "TaintManagerEviction", "taint sick=1:NoExecute", 32),
				summary("Node", "n-2", "m", "TaintManagerEviction", "taint other:NoExecute", 31),
				summary("Node", "n-1", "n", "TaintManagerEviction", "taint earlier:NoExecute", 5),
			},
			Gone, CauseNodeTaint,
			"Gone since about 30s ago: it was evicted because of taint sick=1:NoExecute of Node n-1.",
		},
		"by a taint that no event names": {
			[]string{scheduled, marked, node("n-1", "1", sick)},
			Gone, CauseNodeTaint,
			"Gone since about 30s ago: it was evicted because of a taint of node n-1, which has sick:NoExecute.",
		},
		"by a taint that is gone too": {
			[]string{scheduled, marked, node("n-1", "1", "")},
			Gone, CauseNodeTaint,
			"Gone since about 30s ago: it was evicted because of a taint of node n-1, which no event names and which is gone.",
		},
		"by a rule, as a policy says": {
			[]string{
				scheduled, ofP("DeviceTaintManagerEviction", "Evicting, as EvictionPolicy gentle says", 30),
				summary("DeviceTaintRule", "hot", "r", "DeviceTaintManagerEviction", "taint hot:NoExecute", 31),
			},
			Gone, CauseDeviceTaint,
			"Gone since about 30s ago: it was evicted because of a taint of a device (as EvictionPolicy gentle says); about then pods left because of taint hot:NoExecute of DeviceTaintRule hot.",
		},
		"by a rule that the event on the pod names": {
			[]string{
				scheduled,
				strings.Replace(ofP("DeviceTaintManagerEviction", "Evicting, as EvictionPolicy gentle says", 30), "namespace: default}",
					`namespace: default, annotations: {tollgate.dev/evicted-because: "taint hot:NoExecute of DeviceTaintRule hot, device d/p/0"}}`, 1),
				summary("DeviceTaintRule", "other", "r", "DeviceTaintManagerEviction", "taint other:NoExecute", 31),
			},
			Gone, CauseDeviceTaint,
			"Gone since about 30s ago: it was evicted because of taint hot:NoExecute of DeviceTaintRule hot, device d/p/0 (as EvictionPolicy gentle says).",
		},
		"by one of two patches": {
			[]string{
				ofP("DeviceTaintManagerEviction", "Marking for deletion", 30),
				summary("ResourceSlicePatch", "b", "b", "DeviceTaintManagerEviction", "taint hot:NoExecute", 31),
				summary("ResourceSlicePatch", "a", "a", "DeviceTaintManagerEviction", "taints hot:NoExecute, old:NoExecute", 31),
			},
			Gone, CauseDeviceTaint,
			"Gone since about 30s ago: it was evicted because of a taint of a device; about then pods left because of taint hot:NoExecute of ResourceSlicePatch b and taints hot:NoExecute, old:NoExecute of ResourceSlicePatch a.",
		},
		"by no taint: one was cancelled": {
			[]string{scheduled, ofP("TaintManagerEviction", "Cancelling deletion of Pod ml/p", 30), ofP("Killing", "Stopping container c", 40)},
			Gone, CauseDeleted, "Gone: no event says that a taint made it leave; the last is 20s ago: Killing: Stopping container c.",
		},
		"the events of an earlier pod of the name do not count": {
			[]string{event("Pod", "p", "ml", "old", "TaintManagerEviction", "Marking for deletion Pod ml/p", 10), scheduled, ofP("Killing", "Stopping container c", 40)},
			Gone, CauseDeleted, "Gone: no event says that a taint made it leave; the last is 20s ago: Killing: Stopping container c.",
		},
		"it never was: what should create it is refused": {
			[]string{event("ReplicaSet", "p", "ml", "rs", "FailedCreate", `Error creating: admission webhook denied the request: TolerationPolicy/dedicated: not granted.`, 50)},
			NotCreated, CauseRefused,
			"Not created: ReplicaSet p could not create it (10s ago): Error creating: admission webhook denied the request: TolerationPolicy/dedicated: not granted.",
		},
		"its node is not known": {
			[]string{marked, summary("Node", "n-2", "m", "TaintManagerEviction", "taint other:NoExecute", 31)},
			Gone, CauseNodeTaint,
			"Gone since about 30s ago: it was evicted because of a taint of its node, which is not known; about then pods left because of taint other:NoExecute of Node n-2.",
		},
		"what creates others of similar names is not its own": {
			[]string{event("StatefulSet", "p-web", "ml", "s", "FailedCreate", "Error creating: x", 50), event("StatefulSet", "p-web-front", "ml", "s", "FailedCreate", "Error creating: y", 55)},
			NotCreated, CauseRefused,
			"Not created: StatefulSet p-web could not create it (10s ago): Error creating: x.",
		},
		"nothing is known of it": {
			[]string{event("ReplicaSet", "q", "ml", "rs", "FailedCreate", "Error creating: x", 50)},
			NotFound, CauseUnknown,
			"Not found: namespace ml has no pod p, and no event tells of one (events are kept for an hour).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := worldOf(t, test.world...).Pod(t.Context(), "ml", "p")
			require.NoError(t, err)
			require.Equal(t, test.answer, got.Answer)
			require.Equal(t, test.state, got.State)
			require.Equal(t, test.kind, got.Causes[0].Kind)
		})
	}
}

func TestControllersNameWhatTheyMake(t *testing.T) {
	t.Parallel()
	for name, controller := range map[string]string{"web-7d4b9-x2x3": "web-7d4b9", "db-0": "db", "job-3-x2x3": "job"} {
		require.True(t, madeBy(name, controller), name)
	}
	for name, controller := range map[string]string{"web-frontend-abc": "web", "webby": "web", "web": "web", "web-": "web"} {
		require.False(t, madeBy(name, controller), name)
	}
}

func TestPodOnItsWayOutSaysWhoSentIt(t *testing.T) {
	t.Parallel()
	const leaving = `metadata: {name: p, namespace: ml, uid: p-uid, deletionTimestamp: "2026-03-01T12:00:20Z", deletionGracePeriodSeconds: 30, finalizers: [a]}`
	going := func(conditions string) string {
		return "apiVersion: v1\nkind: Pod\n" + leaving + "\nspec: {nodeName: n-1, containers: [{name: c, image: i}]}\nstatus: {phase: Running, startTime: \"2026-03-01T11:55:00Z\", conditions: [" + conditions + "]}\n"
	}
	const tainted = `{type: DisruptionTarget, status: "True", reason: DeletionByTaintManager, message: "Taint manager: deleting due to NoExecute taint"}`
	for name, test := range map[string]struct {
		world  []string
		answer string
	}{
		"by a taint that stands": {
			[]string{node("n-1", "1", sick), going(tainted)},
			"Terminating since 10s: it was evicted: taint sick:NoExecute of node n-1 is not tolerated.",
		},
		"by a taint that is gone": {
			[]string{node("n-1", "1", ""), going(tainted)},
			"Terminating since 10s: it was evicted because of a taint that is gone meanwhile.",
		},
		"by preemption, although a taint would have": {
			[]string{node("n-1", "1", sick), going(`{type: DisruptionTarget, status: "True", reason: PreemptionByScheduler, message: "default-scheduler: preempting"}`)},
			"Terminating since 10s: it was disrupted, and not by a taint that is known here (PreemptionByScheduler: default-scheduler: preempting).",
		},
		"by somebody": {
			[]string{node("n-1", "1", sick), going("")},
			"Terminating since 10s: somebody deleted it, and no taint did.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := worldOf(t, test.world...).Pod(t.Context(), "ml", "p")
			require.NoError(t, err)
			require.Equal(t, test.answer, got.Answer)
			require.Equal(t, Terminating, got.State)
		})
	}
}
