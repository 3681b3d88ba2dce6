package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

func TestNodeCountsWhatBecomesOfItsPods(t *testing.T) {
	t.Parallel()
	const protects = `
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: keep, uid: k}
spec: {taints: [{key: sick}], priority: 2, podSelector: {matchLabels: {keep: always}}, protect: {podSelector: {matchLabels: {keep: always}}}}
---
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: paused, uid: p}
spec: {taints: [{key: sick}], podSelector: {matchLabels: {keep: paused}}, paused: true}
`
	labelled := func(name, keep string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: ml, labels: {keep: " + keep + "}}\nspec: {nodeName: n-1, containers: []}\nstatus: {" + running + "}\n"
	}
	w := worldOf(t, node("n-1", "1", sick), protects,
		labelled("always", "always"), labelled("paused", "paused"), pod("due", onN, running), pod("over", onN, "phase: Succeeded"),
		pod("later", onN+", "+tolerating(`{key: sick, operator: Exists, effect: NoExecute, tolerationSeconds: 600}`), running),
		pod("stays", onN+", "+tolerating(`{operator: Exists}`), running),
		"apiVersion: v1\nkind: Pod\nmetadata: {name: going, namespace: ml, finalizers: [a], deletionTimestamp: \"2026-03-01T12:00:20Z\"}\nspec: {nodeName: n-1, containers: []}\n",
	)
	got := w.Node("n-1")
	require.Equal(t, "Taint sick:NoExecute evicts who does not tolerate it: 1 pod on the way out, 1 pod has to leave now, 1 pod has to leave later, the last in 9m1s, 2 pods held and 1 pod tolerates for ever what would make it leave.", got.Answer)
	states := map[string]State{}
	for _, f := range got.Pods {
		states[f.Name] = f.State
	}
	require.Equal(t, map[string]State{"going": Terminating, "due": Due, "later": Leaving, "always": Held, "paused": Held, "stays": Staying}, states)
	require.Equal(t, "Not found: the cluster has no node none.", w.Node("none").Answer)
	require.Equal(t, "No taint keeps pods off or makes them leave: no pod is on it.", worldOf(t, node("n-1", "1", "")).Node("n-1").Answer)
}

func TestStaticPodsStay(t *testing.T) {
	t.Parallel()
	w := worldOf(t, node("n-1", "1", sick), "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml, annotations: {kubernetes.io/config.mirror: x}}\nspec: {nodeName: n-1, containers: []}\nstatus: {"+running+"}\n")
	got, err := w.Pod(t.Context(), "ml", "p")
	require.NoError(t, err)
	require.Equal(t, "Stays on node n-1: it is a static pod, which its kubelet runs whatever the taints.", got.Answer)
}

func TestNodeKnowsWhatBudgetsHold(t *testing.T) {
	t.Parallel()
	w := worldOf(t, held()...)
	require.Contains(t, w.Node("n-1").Answer, ": 1 pod held and 1 pod tolerates for ever")
	got, err := w.Pod(t.Context(), "ml", "p")
	require.NoError(t, err)
	require.Equal(t, Held, got.State)
}

func TestModesSayWhoEvicts(t *testing.T) {
	t.Parallel()
	const paused = "apiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: x, uid: u}\nspec: {taints: [{key: sick}], paused: true, window: {seconds: 600}}\n"
	const given = `
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml, annotations: {tollgate.dev/window: "sick=600"}}
spec: {nodeName: n-1, containers: [], tolerations: [{key: sick, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]}
status: {` + running + `}
`
	for mode, test := range map[configv1alpha1.EvictionMode]struct {
		by, answer string
	}{
		configv1alpha1.EvictionObserve: {"Kubernetes", "Has to leave node n-1 in 9m1s: taint sick:NoExecute of node n-1 is tolerated for a while, which ends then (toleration sick:NoExecute for 600s)."},
		configv1alpha1.EvictionWindow:  {"Tollgate", "Held on node n-1, which it would have to leave in 9m1s: EvictionPolicy/x is paused; it leaves in 9m1s all the same; "},
	} {
		w := worldOf(t, node("n-1", "1", sick), given, paused)
		w.Evictions.Terms.Mode = mode
		got, err := w.Pod(t.Context(), "ml", "p")
		require.NoError(t, err)
		require.Contains(t, got.Answer, test.answer, mode)
		require.Equal(t, test.by, got.Eviction.By, mode)
	}
}

func TestWithoutTollgateNoPolicyHoldsAnybody(t *testing.T) {
	t.Parallel()
	w := worldOf(t, node("n-1", "1", sick), pod("p", onN, running),
		"apiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: x, uid: u}\nspec: {taints: [{key: sick}], paused: true}\n")
	w.Evictions.Terms = settings.Eviction{}
	got, err := w.Pod(t.Context(), "ml", "p")
	require.NoError(t, err)
	require.Equal(t, "Has to leave node n-1 now (due 60s ago): taint sick:NoExecute of node n-1 is not tolerated.", got.Answer)
	require.Equal(t, &Eviction{By: "Kubernetes", Method: "Delete"}, got.Eviction)
}
