package explain

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

var update = flag.Bool("update", false, "write testdata anew")

const (
	policies = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: dedicated}
spec: {taints: [{key: dedicated}], grants: [{namespaces: [ml, ops]}]}
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: nobody}
spec: {taints: [{key: "*", effects: [NoExecute]}], validationActions: [Warn]}
---
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: ml}
spec:
  match: {namespaces: [ml]}
  pod:
    tolerations: [{key: dedicated, operator: Equal, value: ml}]
    nodeSelector: {pool: ml}
    topologySpread: {nodeTaintsPolicy: Honor}
  claim:
    tolerations: [{key: worn, operator: Exists, effect: NoSchedule}]
---
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: gentle, uid: u}
spec: {taints: [{key: sick}, {target: Device, key: hot}], method: Evict, deleteAfter: 30m, breaker: {maxPods: 5, window: 10m}}
status: {held: 0}
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: sre}
spec:
  taints: [{key: sick}]
  setters: [{subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: sre}], operations: [Add, Remove]}, {rbac: true}]
  register: [{nodeSelector: {matchLabels: {zone: z1}}, taints: [{key: dedicated, value: ml, effect: NoSchedule}]}]
  limits: {maxAffectedPods: 50, window: 10m}
  ttl: 24h
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: ml}
spec: {selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}
`
	sickNode = `
apiVersion: v1
kind: Node
metadata:
  name: n-1
  labels: {zone: z1}
  managedFields:
  - {manager: kubelet, operation: Update, apiVersion: v1, time: "2026-03-01T10:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:status": {}}}
  - {manager: kubectl-taint, operation: Update, apiVersion: v1, time: "2026-03-01T11:59:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:taints": {}}}}
spec: {taints: [{key: sick, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}, {key: dedicated, value: ml, effect: NoSchedule}]}
`
)

// held is a pod that has to leave, of a world with all kinds of policies.
func held() []string {
	return []string{
		policies, sickNode, gpus, gpuClass, hot, claim(`tolerations: [{key: worn, operator: Exists, effect: NoSchedule}]`, has1(`{key: hot, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}`)),
		pod("p", onN+", "+usesGPU+", nodeSelector: {pool: ml}, "+tolerating(`{key: dedicated, value: ml}, {key: sick, operator: Exists, effect: NoExecute, tolerationSeconds: 30}`), running),
		pod("q", onN+", "+tolerating(`{key: sick, operator: Exists}`), running),
		event("Pod", "p", "ml", "p-uid", "Scheduled", "Successfully assigned ml/p to n-1", 1),
		heldEvent("EvictionHeld", "nodes_down", "", 40),
	}
}

func TestTextOfExplanations(t *testing.T) {
	t.Parallel()
	spreadOver := "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]"
	wedged := []string{
		node("a", "z1", ""), node("b", "z2", `{key: dedicated, value: x, effect: NoSchedule}`), node("c", "z2", `{key: dedicated, value: x, effect: NoSchedule}`), node("keyless", "z3", ""),
		strings.Replace(node("d", "z4", ""), "zone: z4", "rack: r4", 1), pod("other", "nodeName: a", running), pod("third", "nodeName: keyless", running),
		pod("p", spreadOver, unschedulable("0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 node(s) didn't match pod topology spread constraints.")),
	}
	podOf := func(objects []string) func(t *testing.T) explanation {
		return func(t *testing.T) explanation {
			t.Helper()
			p, err := worldOf(t, objects...).Pod(t.Context(), "ml", "p")
			require.NoError(t, err)
			return p
		}
	}
	for name, explained := range map[string]func(t *testing.T) explanation{
		"pod-held":    podOf(held()),
		"pod-spread":  podOf(wedged),
		"pod-missing": podOf(nil),
		"claim": func(t *testing.T) explanation {
			t.Helper()
			c, err := worldOf(t, held()...).Claim(t.Context(), "ml", "gpu")
			require.NoError(t, err)
			return c
		},
		"node": func(t *testing.T) explanation { t.Helper(); return worldOf(t, held()...).Node("n-1") },
		"device": func(t *testing.T) explanation {
			t.Helper()
			return worldOf(t, held()...).Device(t.Context(), device.ID{Driver: "gpu.example.com", Pool: "n-1", Name: "gpu-1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := explained(t)
			var narrow, wide bytes.Buffer
			require.NoError(t, writeText(&narrow, answer, false, noon))
			require.NoError(t, writeText(&wide, answer, true, noon))
			golden(t, name+".txt", narrow.Bytes())
			golden(t, name+"-wide.txt", wide.Bytes())
			document, err := json.MarshalIndent(answer, "", "  ")
			require.NoError(t, err)
			golden(t, name+".json", append(document, '\n'))
			for line := range strings.SplitSeq(narrow.String(), "\n") {
				require.LessOrEqual(t, len([]rune(line)), cli.Width, line)
				require.Equal(t, strings.TrimRight(line, " "), line)
			}
		})
	}
}

func TestTextDoesNothingToTheTerminal(t *testing.T) {
	t.Parallel()
	p := &Pod{
		Answer:  "Pending: \x1b[2J\u009b31m x.",
		Events:  []Event{{About: "Pod p", Reason: "R", Message: "a\x1b]0;title\a\r\nb"}},
		Taints:  []Taint{{Taint: "a\x1b[8m\nb"}},
		Missing: nil,
	}
	for _, wide := range []bool{true, false} {
		var out bytes.Buffer
		require.NoError(t, writeText(&out, p, wide, noon))
		require.False(t, strings.ContainsFunc(strings.ReplaceAll(out.String(), "\n", ""), unicode.IsControl), "%q", out.String())
		require.Contains(t, out.String(), `Pending: ^[[2J\u009b31m x.`)
		require.Contains(t, out.String(), "a^[]0;title^G b")
		require.Contains(t, out.String(), "a^[[8m b")
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}
