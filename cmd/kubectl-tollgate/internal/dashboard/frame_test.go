package dashboard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/operate"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// manifests are a cluster in which a breaker holds one pod, a policy pauses another, and a third waits.
const manifests = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {taints: [{key: example.com/broken, effect: NoExecute, timeAdded: "2026-03-01T11:50:00Z"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, spec: {taints: [{key: example.com/hot, effect: NoExecute, timeAdded: "2026-03-01T11:50:00Z"}, {key: a, effect: PreferNoSchedule}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: held, uid: u1, labels: {app: web}}, spec: {nodeName: n1}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: waits, uid: u2}, spec: {nodeName: n1, tolerations: [{key: example.com/broken, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: paused, uid: u3}, spec: {nodeName: n2}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: stays, uid: u4}, spec: {nodeName: n3}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {namespace: web, name: web}
spec: {selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 2}
---
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: default, uid: default}
spec: {taints: [{key: "*"}], pace: {podsPerSecond: 5}, breaker: {maxPods: 3, maxPercent: 10, window: 10m}}
status:
  held: 1
  breaker:
    tripped: "2026-03-01T11:55:00.000000Z"
    granted: [{until: "2026-03-01T11:40:00.000000Z", pods: 7}, {until: "2026-03-01T11:55:00.000000Z", pods: 3}]
---
{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: gpus, uid: gpus}, spec: {priority: 9, taints: [{key: example.com/hot}], paused: true}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec: {driver: gpu.example.com, nodeName: n3, pool: {name: n3, resourceSliceCount: 1}, devices: [{name: gpu-0, taints: [{key: sick, effect: NoSchedule}]}, {name: gpu-1}]}
`

// frameAt returns the frame of manifests at a time.
func frameAt(t *testing.T, text string, now time.Time) *frame {
	t.Helper()
	objects, err := cli.Parse("f", []byte(text))
	require.NoError(t, err)
	found, err := state.FromManifests(objects, now)
	require.NoError(t, err)
	list, log := evictions.NewCluster(found).List(now, &evictions.Filter{}), evictions.NewLog(now)
	log.Next(list, nil)
	f, err := frameOf(&evictions.Frame{Now: now, List: list, Log: log, Lacks: append(found.Missing(), "events are not known"), Cluster: found}, &operate.Objects{})
	require.NoError(t, err)
	return f
}

func TestAFrameHasWhatThePageShows(t *testing.T) {
	t.Parallel()
	f := frameAt(t, manifests, noon)
	for name, want := range map[string]string{
		"nodes": `[{"name":"n1","taints":["example.com/broken:NoExecute"],"effect":"NoExecute","pods":2},` +
			`{"name":"n2","taints":["example.com/hot:NoExecute","a:PreferNoSchedule"],"effect":"NoExecute","pods":1},{"name":"n3"}]`,
		"devices": `[{"name":"gpu.example.com/n3/gpu-0","taints":["sick:NoSchedule"],"effect":"NoSchedule"},{"name":"gpu.example.com/n3/gpu-1"}]`,
		"hidden":  `{"nodes":0,"devices":0}`,
		"policies": `[{"name":"gpus","priority":9,"paused":true,"held":0},` +
			`{"name":"default","priority":0,"held":1,"pace":"5 pods/s","breaker":"3 pods or 10 % in 10m","used":3,"tripped":1772366100000,"breaks":1}]`,
		"budgets": `[{"namespace":"web","name":"web","allowed":2,"pods":1}]`,
		"taints":  `[{"kind":"node","name":"n1","pods":{"Held":1,"Waiting":1},"breaks":1},{"kind":"node","name":"n2","pods":{"Paused":1}}]`,
	} {
		require.JSONEq(t, want, string(f.sections[name]), name)
	}
	var pods []string
	for _, key := range slices.Sorted(maps.Keys(f.pods)) {
		pods = append(pods, string(f.pods[key]))
	}
	require.JSONEq(t, `[
		{"key":"web/held/u1","namespace":"web","name":"held","node":"n1","state":"Held","due":1772365800000,"reason":"broken of node/n1; breaker of policy default"},
		{"key":"web/paused/u3","namespace":"web","name":"paused","node":"n2","state":"Paused","due":1772365800000,"reason":"hot of node/n2; policy gpus is paused"},
		{"key":"web/waits/u2","namespace":"web","name":"waits","node":"n1","state":"Waiting","due":1772369401000,"reason":"broken of node/n1"}
	]`, "["+strings.Join(pods, ",")+"]")
	var shown struct {
		Missing   []string       `json:"missing"`
		Evictions map[string]int `json:"evictions"`
	}
	require.NoError(t, json.Unmarshal(f.sections["status"], &shown))
	require.Equal(t, []string{"events are not known"}, shown.Missing, "each sentence is there once")
	require.Equal(t, map[string]int{"Held": 1, "Paused": 1, "Waiting": 1}, shown.Evictions)
}

func TestAnUpdateHasWhatChanged(t *testing.T) {
	t.Parallel()
	first := frameAt(t, manifests, noon)
	whole := first.since(nil)
	require.Len(t, whole.Pods, 3)
	require.Len(t, whole.Sections, 7)
	require.Empty(t, whole.Gone)

	same := first.since(first)
	require.Equal(t, update{Now: noon.UnixMilli(), Sections: map[string]json.RawMessage{}}, same)

	next := frameAt(t, strings.Replace(manifests, "name: paused, uid: u3", "name: other, uid: u5", 1), noon)
	changes := next.since(first)
	require.Equal(t, []string{"web/paused/u3"}, changes.Gone)
	require.Len(t, changes.Pods, 1)
	require.Contains(t, string(changes.Pods[0]), `"web/other/u5"`)
	require.Empty(t, changes.Sections, "the counts are the same")
}

func TestThePageHasRoomForTaintedDevicesFirst(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	const slices, devices = 41, 128
	for i := range slices {
		number := strings.Repeat("i", i+1)
		text.WriteString("---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s-" + number + "}\nspec:\n  driver: gpu.example.com\n  pool: {name: p-" + number + ", resourceSliceCount: 1}\n  devices:\n")
		for j := range devices {
			text.WriteString("  - {name: d-" + strings.Repeat("j", j+1))
			if j == 0 {
				text.WriteString(", taints: [{key: sick, effect: NoExecute}]")
			}
			text.WriteString("}\n")
		}
	}
	f := frameAt(t, text.String(), noon)
	require.Len(t, f.shown.Devices, slices)
	require.Equal(t, hidden{Devices: slices * (devices - 1)}, f.shown.Hidden)
}
