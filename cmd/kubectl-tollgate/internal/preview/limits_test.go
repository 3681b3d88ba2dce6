package preview

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// limited is the cluster of world with TaintPolicies and more.
func limited(tb testing.TB, more ...string) *cli.Clients {
	tb.Helper()
	objects := append([]string{
		lease(settings.DefaultEviction(), noon),
		`
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: few-nodes, uid: few-nodes}
spec: {taints: [{key: "*", effects: [NoExecute]}], setters: [{subjects: [{kind: User, name: nobody}]}], limits: {maxAffectedPods: 3, window: 10m}}`,
		`
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: devices, uid: devices}
spec: {taints: [{target: Device, key: "*"}], limits: {maxAffectedPercent: 10, requirePreview: true, requireSelector: true}}`,
		`
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: warns, uid: warns}
spec: {taints: [{key: soft}], validationActions: [Warn], matchConditions: [{name: people, expression: "request.userInfo.username != 'robot'"}], limits: {maxAffectedPods: 1}}`,
	}, more...)
	return clientsOf(tb, allKinds, append(objects, world...)...)
}

func TestARefusalByLimitsIsForetold(t *testing.T) {
	t.Parallel()
	const preview = "would be refused: TaintPolicy/devices: spec.taint.effect (hot:NoExecute): evicts pods, and the rule did not stand at effect None with this taint and selector before;"
	for sentence, c := range map[string]struct {
		stdin     string
		arguments []string
		want      []string
	}{
		"more pods of a node than may go": {
			"",
			[]string{"node", "node-7", "down:NoExecute"},
			[]string{"would be refused: TaintPolicy/few-nodes: spec.taints[1] (down:NoExecute): hits 4 pods; at most 3 are allowed; to approve it, create an EvictionApproval with spec {node: node-7, taint: {key: down, effect: NoExecute}, maxPods: 4}, then write this again"},
		},
		"a policy that warns, where nobody knows who writes": {
			"",
			[]string{"node", "node-7", "soft:NoExecute"},
			[]string{"would be warned of: TaintPolicy/warns: spec.taints[1] (soft:NoExecute): hits 4 pods; at most 1 are allowed (if its matchConditions hold)"},
		},
		"devices without a look before": {
			"",
			[]string{"device", "gpu.example.com", "hot:NoExecute"},
			[]string{preview, "would be refused: TaintPolicy/devices: spec.taint (hot:NoExecute): hits 1 pod of 7 in the cluster; at most 10 percent are allowed; to approve it, create an EvictionApproval with spec {deviceTaintRule: NAME,"},
		},
		"devices of a class": {
			"",
			[]string{"device", "--class", "a100", "hot:NoExecute"},
			[]string{"evicts pods, and ResourceSlicePatch NAME did not stand at effect None", "{resourceSlicePatch: NAME, taint: {key: hot, effect: NoExecute}, maxPods: 1}"},
		},
		"manifests": {
			manyKinds,
			[]string{"-f", "-"},
			[]string{
				"would be refused: TaintPolicy/few-nodes: spec.taints[0] (down:NoExecute): hits 4 pods; at most 3 are allowed", preview,
				"{deviceTaintRule: hot, taint: {key: hot, effect: NoExecute}, maxPods: 1}", "{resourceSlicePatch: recall,",
			},
		},
		"every device": {
			"{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: all}, spec: {deviceSelector: {}, taint: {key: hot, effect: None}}}",
			[]string{"-f", "-"},
			[]string{"would be refused: TaintPolicy/devices: spec.deviceSelector: names no driver, pool or device, and may select every device; name a driver, a pool or a device"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := runs(t, limited(t), c.stdin, c.arguments...)
			require.NoError(t, r.err, "it is a preview, and no write")
			for _, want := range c.want {
				require.Contains(t, r.whole(), want)
			}
		})
	}
}

func TestWhatLimitsLetThroughIsNotForetoldAsRefused(t *testing.T) {
	t.Parallel()
	const stood = "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: hot, uid: hot}, spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: hot, effect: None}}}"
	for sentence, c := range map[string]struct {
		more      []string
		arguments []string
		lacks     string
	}{
		"few pods":                    {nil, []string{"node", "node-8", "down:NoExecute"}, "would be"},
		"a taint that evicts nobody":  {nil, []string{"node", "node-7", "down:NoSchedule"}, "would be"},
		"a taint that is taken away":  {nil, []string{"node", "node-7", "old-"}, "would be"},
		"devices that were looked at": {[]string{stood}, []string{"device", "gpu.example.com", "hot:NoExecute"}, "did not stand at effect None"},
		"pods that were approved": {
			[]string{`
apiVersion: tollgate.dev/v1alpha1
kind: EvictionApproval
metadata: {name: night, uid: night, creationTimestamp: "2026-03-01T11:50:00Z"}
spec: {node: node-7, taint: {key: down, effect: NoExecute}, maxPods: 4, expiresAfter: 1h}`},
			[]string{"node", "node-7", "down:NoExecute"},
			"would be",
		},
		"no Tollgate, nobody to refuse": {[]string{"gone"}, []string{"node", "node-7", "down:NoExecute"}, "would be refused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var clients *cli.Clients
			if len(c.more) > 0 && c.more[0] == "gone" {
				clients = clientsOf(t, allKinds, append([]string{`
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: few-nodes, uid: few-nodes}
spec: {taints: [{key: "*"}], limits: {maxAffectedPods: 3}}`}, world...)...)
			} else {
				clients = limited(t, c.more...)
			}
			r := runs(t, clients, "", c.arguments...)
			require.NoError(t, r.err)
			require.NotContains(t, r.whole(), c.lacks)
		})
	}
}

func TestARefusalIsInTheDocument(t *testing.T) {
	t.Parallel()
	r := runs(t, limited(t), "", "node", "node-7", "down:NoExecute", "-o", "json", "--fail-over", "10")
	require.NoError(t, r.err)
	var said struct {
		Previews []struct {
			Refused []string `json:"wouldBeRefused"`
		} `json:"previews"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &said))
	require.Len(t, said.Previews, 1)
	require.Len(t, said.Previews[0].Refused, 1)
	require.Contains(t, said.Previews[0].Refused[0], "TaintPolicy/few-nodes: spec.taints[1] (down:NoExecute): hits 4 pods; at most 3 are allowed")
}
