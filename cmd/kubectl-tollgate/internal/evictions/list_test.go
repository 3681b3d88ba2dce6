package evictions

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// said returns what a list says of each pod, in its order.
func said(list []Eviction, now time.Time) string {
	var rows []string
	for i := range list {
		rows = append(rows, strings.Join(shortRow(&list[i], now)[1:], " | "))
	}
	return strings.Join(rows, "\n")
}

func TestStates(t *testing.T) {
	t.Parallel()
	const replace, window, observe = configv1alpha1.EvictionReplace, configv1alpha1.EvictionWindow, configv1alpha1.EvictionObserve
	tripped := "\nstatus: {breaker: {tripped: \"2026-03-01T11:58:00.000000Z\", limit: 1}}"
	const breaker, evict = "breaker: {maxPods: 1, window: 10m}", "method: Evict"
	broken := node(-time.Minute, "example.com/broken")
	for sentence, c := range map[string]struct {
		mode  configv1alpha1.EvictionMode
		world []string
		want  string
	}{
		"a pod that tolerates the taint for a while waits": {
			replace, []string{broken, pod("p", "a", tolerated("example.com/broken", "300"))}, "p | in 4m1s | Waiting | broken of node/n1",
		},
		"a pod that does not is due": {replace, []string{broken, pod("p", "a")}, "p | 60s ago | Due | broken of node/n1"},
		"a pod that tolerates it for ever stays": {
			replace, []string{broken, pod("p", "a", "{key: example.com/broken, operator: Exists}")}, "",
		},
		"a pod on its way out leaves, and its condition says who sent it": {
			replace,
			[]string{broken, strings.Replace(pod("p", "a"), "creationTimestamp", "deletionTimestamp: "+stamped(30*time.Second)+", creationTimestamp", 1) +
				"\nstatus: {phase: Failed, conditions: [{type: DisruptionTarget, status: \"True\", reason: DeletionByTaintManager}]}"},
			"p | now | Leaving | broken of node/n1; DeletionByTaintManager",
		},
		"who is deleted long before the taint makes them leave does not leave because of it": {
			replace,
			[]string{broken, strings.Replace(pod("p", "a", tolerated("example.com/broken", "300")), "creationTimestamp", "deletionTimestamp: "+stamped(30*time.Second)+", creationTimestamp", 1)},
			"",
		},
		"unless a condition says that somebody evicted it": {
			replace,
			[]string{broken, strings.Replace(pod("p", "a", tolerated("example.com/broken", "300")), "creationTimestamp", "deletionTimestamp: "+stamped(30*time.Second)+", creationTimestamp", 1) +
				"\nstatus: {conditions: [{type: DisruptionTarget, status: \"True\", reason: EvictionByEvictionAPI}]}"},
			"p | now | Leaving | broken of node/n1; EvictionByEvictionAPI",
		},
		"a policy that is paused holds it, due or not": {
			replace,
			[]string{broken, pod("p", "a"), pod("q", "a", tolerated("example.com/broken", "300")), policy("stop", "example.com/broken", "paused: true")},
			"p | 60s ago | Paused | broken of node/n1; policy stop is paused\nq | in 4m1s | Paused | broken of node/n1; policy stop is paused",
		},
		"a policy that protects it keeps it": {
			replace,
			[]string{broken, pod("p", "a"), policy("safe", "example.com/broken", "protect: {podSelector: {matchLabels: {app: a}}}")},
			"p | stays | Protected | broken of node/n1; policy safe protects it",
		},
		"protected from one taint it leaves because of another": {
			replace,
			[]string{node(-time.Minute, "example.com/broken", "example.com/hot"), pod("p", "a", tolerated("example.com/hot", "300")), policy("safe", "example.com/broken", "protect: {podSelector: {matchLabels: {app: a}}}")},
			"p | in 4m1s | Waiting | hot of node/n1 +1",
		},
		"paused for one taint it leaves because of another when that is due": {
			replace,
			[]string{node(-time.Minute, "example.com/broken", "example.com/hot"), pod("p", "a", tolerated("example.com/hot", "300")), policy("stop", "example.com/broken", "paused: true")},
			"p | 60s ago | Paused | broken of node/n1 +1; policy stop is paused, leaves in 4m1s",
		},
		"a breaker that has tripped holds it once it is due": {
			replace,
			[]string{broken, pod("p", "a"), pod("q", "a", tolerated("example.com/broken", "300")), policy("gentle", "example.com/broken", breaker) + tripped},
			"q | in 4m1s | Waiting | broken of node/n1\np | 60s ago | Held | broken of node/n1; breaker of policy gentle",
		},
		"a breaker that has not does not": {
			replace, []string{broken, pod("p", "a"), policy("gentle", "example.com/broken", breaker)}, "p | 60s ago | Due | broken of node/n1",
		},
		"the breaker of a policy that does not decide holds it as well": {
			replace,
			[]string{broken, pod("p", "a"), policy("first", "example.com/broken", "priority: 1"), policy("all", `"*"`, "breaker: {maxPods: 1, window: 10m, scope: Selected}") + tripped},
			"p | 60s ago | Held | broken of node/n1; breaker of policy all",
		},
		"a budget that allows nothing blocks who is evicted": {
			replace,
			[]string{broken, pod("p", "a"), pod("q", "b"), policy("gentle", "example.com/broken", evict), budget("web", "a", "0"), budget("b", "b", "1")},
			"q | 60s ago | Due | broken of node/n1\np | 60s ago | Blocked | broken of node/n1; budget web",
		},
		"and until deleteAfter": {
			replace,
			[]string{broken, pod("p", "a"), policy("gentle", "example.com/broken", evict, "deleteAfter: 5m"), budget("web", "a", "0")},
			"p | 60s ago | Blocked | broken of node/n1; budget web, leaves in 4m",
		},
		"but not longer": {
			replace,
			[]string{broken, pod("p", "a"), policy("gentle", "example.com/broken", evict, "deleteAfter: 1m"), budget("web", "a", "0")},
			"p | 60s ago | Due | broken of node/n1",
		},
		"two budgets block whatever they allow": {
			replace,
			[]string{broken, pod("p", "a"), policy("gentle", "example.com/broken", evict), budget("web", "a", "5"), budget("also", "a", "5")},
			"p | 60s ago | Blocked | broken of node/n1; several budgets: also,web",
		},
		"nobody asks a budget who deletes": {replace, []string{broken, pod("p", "a"), budget("web", "a", "0")}, "p | 60s ago | Due | broken of node/n1"},
		"where all nodes are down nobody leaves because of that": {
			replace,
			[]string{node(-time.Hour, "node.kubernetes.io/unreachable"), pod("p", "a")},
			"p | 60m ago | Held | unreachable of node/n1; all nodes are down",
		},
		"that the labels of a namespace are not known here holds nobody": {
			replace,
			[]string{broken, strings.Replace(pod("p", "a"), "namespace: web", "namespace: unknown", 1), policy("teams", "example.com/broken", "namespaceSelector: {matchLabels: {team: a}}")},
			"p | 60s ago | Due | broken of node/n1",
		},
		"what an event says of the node holds it": {
			replace,
			[]string{broken, pod("p", "a"), policy("gentle", "example.com/broken"), heldEvent("n1", "EvictionHeld", "example.com/broken:NoExecute", "looping", -30*time.Second)},
			"p | 60s ago | Held | broken of node/n1; it comes back again and again",
		},
		"of a loop it says nothing of pods without a policy": {
			replace,
			[]string{broken, pod("p", "a"), heldEvent("n1", "EvictionHeld", "example.com/broken:NoExecute", "looping", -30*time.Second)},
			"p | 60s ago | Due | broken of node/n1",
		},
		"until an event says that it is over": {
			replace,
			[]string{broken, pod("p", "a"), policy("gentle", "example.com/broken"), heldEvent("n1", "EvictionReleased", "example.com/broken:NoExecute", "looping", -10*time.Second), heldEvent("n1", "EvictionHeld", "example.com/broken:NoExecute", "looping", -30*time.Second)},
			"p | 60s ago | Due | broken of node/n1",
		},
		"an event says nothing of who has just become due": {
			replace,
			[]string{node(-time.Second, "example.com/broken"), pod("p", "a"), policy("gentle", "example.com/broken"), heldEvent("n1", "EvictionHeld", "example.com/broken:NoExecute", "looping", -30*time.Second)},
			"p | 1s ago | Due | broken of node/n1",
		},
		"an event on the pod says why it is not let go": {
			replace,
			[]string{broken, pod("p", "a"), heldUp("p", "refused by somebody", -10*time.Second)},
			"p | 60s ago | Blocked | broken of node/n1; refused: refused by somebody",
		},
		"an event from before it was due says nothing": {
			replace,
			[]string{broken, pod("p", "a"), heldUp("p", "refused by somebody", -2*time.Minute)},
			"p | 60s ago | Due | broken of node/n1",
		},
		"in mode Observe Kubernetes evicts, whatever policies say": {
			observe, []string{broken, pod("p", "a"), policy("stop", "example.com/broken", "paused: true")}, "p | 60s ago | Due | broken of node/n1; by Kubernetes",
		},
		"without Tollgate as well": {"", []string{broken, pod("p", "a")}, "p | 60s ago | Due | broken of node/n1; by Kubernetes"},
		"in mode Window Tollgate evicts within the window": {
			window, []string{broken, windowed("p"), policy("gentle", "example.com/broken", "inject: {seconds: 300}")}, "p | 60s ago | Due | broken of node/n1",
		},
		"and what it holds leaves at the end of the window": {
			window,
			[]string{broken, windowed("p"), policy("gentle", "example.com/broken", "inject: {seconds: 300}", evict), budget("web", "a", "0")},
			"p | 60s ago | Blocked | broken of node/n1; budget web, leaves in 4m1s",
		},
		"who has no window is evicted by Kubernetes": {
			window, []string{broken, pod("p", "a"), policy("gentle", "example.com/broken", "inject: {seconds: 300}", "paused: true")}, "p | 60s ago | Due | broken of node/n1; by Kubernetes",
		},
		"and so is who has a toleration and a policy without a window": {
			window, []string{broken, pod("p", "a", tolerated("example.com/broken", "300")), policy("stop", "example.com/broken", "paused: true")}, "p | in 4m1s | Waiting | broken of node/n1; by Kubernetes",
		},
		"a taint without a window lets Kubernetes evict before the end of that of another": {
			window,
			[]string{
				node(-time.Minute, "example.com/broken", "example.com/hot"),
				pod("p", "a", tolerated("example.com/broken", "600"), tolerated("example.com/hot", "120")),
				policy("gentle", "example.com/broken", "inject: {seconds: 300}"),
			},
			"p | in 61s | Waiting | hot of node/n1 +1; by Kubernetes",
		},
		"who leaves first comes first": {
			replace,
			[]string{broken, pod("d", "a", tolerated("example.com/broken", "90")), pod("c", "a", tolerated("example.com/broken", "300")), pod("b", "a"), pod("a", "b"), policy("safe", "example.com/broken", "protect: {podSelector: {matchLabels: {app: b}}}")},
			"b | 60s ago | Due | broken of node/n1\nd | in 31s | Waiting | broken of node/n1\nc | in 4m1s | Waiting | broken of node/n1\na | stays | Protected | broken of node/n1; policy safe protects it",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, said(world(t, c.mode, c.world...).List(noon, &Filter{}), noon))
		})
	}
}

func TestWhatIsSwitchedOffIsLeftToKubernetes(t *testing.T) {
	t.Parallel()
	const (
		stop  = "kind: EvictionPolicy\nmetadata: {name: stop}\nspec: {taints: [{key: example.com/broken}], podSelector: {matchLabels: {app: a}}, paused: true}"
		cool  = "kind: EvictionPolicy\nmetadata: {name: cool}\nspec: {taints: [{key: example.com/hot, target: Device}], protect: {podSelector: {matchLabels: {app: train}}}}"
		train = "metadata: {name: train, namespace: ml, labels: {app: train}, "
	)
	devices := strings.Replace(gpus, "metadata: {name: train, namespace: ml, ", train, 1)
	tainted := strings.Replace(devices, "nodeName: node-7, resourceClaims", "nodeName: n1, resourceClaims", 1)
	for sentence, c := range map[string]struct {
		nodes, devices bool
		world          []string
		want           string
	}{
		"taints of nodes are": {false, true, []string{node(-time.Minute, "example.com/broken"), pod("p", "a"), stop}, "p | 60s ago | Due | broken of node/n1; by Kubernetes"},
		"and those of devices are not": {
			false, true, []string{devices, cool}, "train | in 10m | Waiting | moved=rack-7 of patch/racks +1",
		},
		"taints of devices are": {
			true, false, []string{devices, cool}, "train | 60s ago | Due | hot of rule/hot +1; by Kubernetes",
		},
		"and those of nodes are not": {true, false, []string{node(-time.Minute, "example.com/broken"), pod("p", "a"), stop}, "p | 60s ago | Paused | broken of node/n1; policy stop is paused"},
		"what Tollgate holds leaves when Kubernetes evicts it": {
			false, true,
			[]string{tainted, cool, node(5*time.Minute, "example.com/broken")},
			"train | in 5m | Waiting | broken of node/n1 +2; by Kubernetes",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			cluster := world(t, configv1alpha1.EvictionReplace, c.world...)
			cluster.Terms.Nodes, cluster.Terms.Devices = c.nodes, c.devices
			require.Equal(t, c.want, said(cluster.List(noon, &Filter{}), noon))
		})
	}
}

// windowed returns a pod that was given five minutes in mode Window.
func windowed(name string) string {
	return strings.Replace(pod(name, "a", tolerated("example.com/broken", "300")), "creationTimestamp",
		`annotations: {tollgate.dev/window: "example.com/broken=300"}, creationTimestamp`, 1)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	c := world(t, configv1alpha1.EvictionReplace, gpus, node(-time.Minute, "example.com/broken"), pod("p", "a"),
		strings.Replace(pod("q", "a"), "namespace: web", "namespace: db", 1))
	for sentence, f := range map[string]struct {
		filter Filter
		want   string
	}{
		"none":                     {Filter{}, "p q train"},
		"a namespace":              {Filter{Namespace: "db"}, "q"},
		"a node":                   {Filter{Node: "n1"}, "p q"},
		"the node of a pod":        {Filter{Node: "node-7"}, "train"},
		"a rule":                   {Filter{Rule: "hot"}, "train"},
		"the patch behind a rule":  {Filter{Patch: "racks"}, "train"},
		"the rule of a patch":      {Filter{Rule: "racks-1"}, "train"},
		"a rule that there is not": {Filter{Rule: "n1"}, ""},
		"all that is asked for":    {Filter{Namespace: "ml", Node: "node-7", Rule: "hot"}, "train"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, e := range c.List(noon, &f.filter) {
				names = append(names, e.Name)
			}
			require.ElementsMatch(t, strings.Fields(f.want), names)
		})
	}
}

// gpus is a pod with a device that a rule of a person and one of a patch taint.
const gpus = `kind: ResourceSlice
metadata: {name: gpus}
spec: {driver: gpu.example.com, nodeName: node-7, pool: {name: node-7, resourceSliceCount: 1}, devices: [{name: gpu-0}]}
---
kind: DeviceTaintRule
metadata: {name: hot, uid: hot}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/hot, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}}
---
kind: DeviceTaintRule
metadata:
  name: racks-1
  uid: racks-1
  labels: {tollgate.dev/resource-slice-patch: racks-uid}
  ownerReferences: [{apiVersion: tollgate.dev/v1alpha1, kind: ResourceSlicePatch, name: racks, uid: racks-uid, controller: true}]
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/moved, value: rack-7, effect: NoExecute, timeAdded: "2026-03-01T12:10:00Z"}}
---
kind: ResourceClaim
metadata: {name: one, namespace: ml}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node-7, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: train, uid: train}]
---
kind: Pod
metadata: {name: train, namespace: ml, creationTimestamp: "2026-03-01T11:00:00Z"}
spec: {nodeName: node-7, resourceClaims: [{name: gpu, resourceClaimName: one}]}`

func TestOfARuleItsStatusSaysWhatOnlyTollgateKnows(t *testing.T) {
	t.Parallel()
	looping := strings.Replace(gpus, `"2026-03-01T11:59:00Z"}}`, `"2026-03-01T11:59:00Z"}}
status: {conditions: [{type: tollgate.dev/EvictionHeld, status: "True", reason: Looping, message: "1 pod is held: again.", lastTransitionTime: "2026-03-01T11:59:30Z"}]}`, 1)
	const gentle = "kind: EvictionPolicy\nmetadata: {name: gentle}\nspec: {taints: [{key: example.com/hot, target: Device}]}"
	require.Equal(t, "train | 60s ago | Due | hot of rule/hot +1", said(world(t, configv1alpha1.EvictionReplace, looping).List(noon, &Filter{}), noon), "no policy slows it down")
	list := world(t, configv1alpha1.EvictionReplace, looping, gentle).List(noon, &Filter{})
	require.Equal(t, "train | 60s ago | Held | hot of rule/hot +1; it comes back again and again, leaves in 10m", said(list, noon))
	require.Equal(t, "status of DeviceTaintRule/hot", list[0].Hold.Word)
	require.Equal(t, "1 pod is held: again.", list[0].Hold.Why)
	require.Equal(t, noon.Add(-30*time.Second), list[0].Hold.Since.UTC())
}

// manyPods is a cluster of that many pods on a tainted node, by states in turn.
func manyPods(tb testing.TB, count int) *Cluster {
	tb.Helper()
	documents := []string{
		node(-time.Minute, "example.com/broken"), budget("web", "a1", "0"),
		policy("gentle", "example.com/broken", "method: Evict", "protect: {podSelector: {matchLabels: {app: a2}}}"),
	}
	for i := range count {
		var tolerations []string
		if i%4 == 0 {
			tolerations = append(tolerations, tolerated("example.com/broken", strconv.Itoa(100+i)))
		}
		documents = append(documents, pod("p-"+strconv.Itoa(i), "a"+strconv.Itoa(i%4), tolerations...))
	}
	return world(tb, configv1alpha1.EvictionReplace, documents...)
}

func BenchmarkList10000Pods(b *testing.B) {
	c := manyPods(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		require.Len(b, c.List(noon, &Filter{}), 10_000)
	}
}
