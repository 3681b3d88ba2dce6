package cli

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// scenario is a preview, and what comes of the write that it is about.
type scenario struct {
	// before are manifests that are applied first; first are arguments of kubectl after
	// that, nothing if empty.
	before string
	first  []string
	// preview are the arguments of preview. FILE is a file with manifest, if there is one.
	preview  []string
	manifest string
	// write are the arguments of kubectl that write what was previewed, or of tollgate if
	// they begin with tollgate.
	write []string
	// goes says in how many seconds pods leave; nobody else does. Held are those that are
	// to leave and do not.
	goes map[string]int
	held []string
	// says are parts of the sentence.
	says []string
}

// podOn is a pod on the node of the scenario.
func podOn(name, tolerations, metadata string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: NS%s}
spec: {nodeName: NODE, tolerations: [%s], containers: [{name: c, image: image}]}
`, name, metadata, tolerations)
}

const forever = "{key: KEY, operator: Exists, effect: NoExecute}"

func forSeconds(seconds int) string {
	return fmt.Sprintf("{key: KEY, operator: Exists, effect: NoExecute, tolerationSeconds: %d}", seconds)
}

// onNodes are the scenarios in which nodes are tainted.
var onNodes = map[string]scenario{
	"who tolerates it for a while goes later, and who does for ever stays": {
		before:  podOn("none", "", "") + podOn("while", forSeconds(6), "") + podOn("ever", forever, ""),
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"none": 0, "while": 6},
		says: []string{"evicts 2 pods in 1 namespace: 1 now, 1 within 6s; 2 without a controller"},
	},
	"only the value that is tolerated is": {
		before:  podOn("same", "{key: KEY, value: disk, effect: NoExecute}", "") + podOn("other", "{key: KEY, value: fan, effect: NoExecute}", ""),
		preview: []string{"node", "NODE", "KEY=disk:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY=disk:NoExecute"},
		goes: map[string]int{"other": 0},
	},
	"a toleration of any value is enough, one of another effect is not": {
		before:  podOn("any", "{key: KEY, operator: Exists}", "") + podOn("schedule", "{key: KEY, operator: Exists, effect: NoSchedule}", ""),
		preview: []string{"node", "NODE", "KEY=disk:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY=disk:NoExecute"},
		goes: map[string]int{"schedule": 0},
	},
	"who tolerates everything stays, a DaemonSet's or not": {
		before:  podOn("agent", "{operator: Exists}", "") + podOn("none", "", ""),
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"none": 0},
	},
	"of several taints the one that is tolerated shortest decides": {
		before: podOn("both", forSeconds(12)+", {key: KEY2, operator: Exists, effect: NoExecute, tolerationSeconds: 4}", "") +
			podOn("one", forever, "") + podOn("two", forSeconds(5)+", {key: KEY2, operator: Exists}", ""),
		preview: []string{"node", "NODE", "KEY:NoExecute", "KEY2:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute", "KEY2:NoExecute"},
		goes: map[string]int{"both": 4, "one": 0, "two": 5},
	},
	"the image of a static pod stays": {
		before:  podOn("static", "{operator: Exists, effect: NoSchedule}", ", annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.source: file}") + podOn("none", "", ""),
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"none": 0},
	},
	"a PodDisruptionBudget is named, and keeps nobody": {
		before: podOn("guarded", "", ", labels: {app: web}") + `
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: NS}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}`,
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"guarded": 0}, says: []string{"1 guarded by a PodDisruptionBudget"},
	},
	"whom an EvictionPolicy protects stays": {
		before: podOn("protected", "", ", labels: {stays: 'true'}") + podOn("none", "", "") + `
---
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: NS}
spec: {taints: [{key: KEY}], protect: {podSelector: {matchLabels: {stays: "true"}}}}`,
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"none": 0}, says: []string{"evicts 1 pod ", "not among them: 1 protected by EvictionPolicy/NS"},
	},
	"whom an EvictionPolicy holds goes when it is not paused any more": {
		before: podOn("held", "", "") + `
---
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: NS}
spec: {taints: [{key: KEY}], paused: true}`,
		preview: []string{"node", "NODE", "KEY:NoExecute"}, write: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		goes: map[string]int{"held": 0}, held: []string{"held"}, says: []string{"1 held while EvictionPolicy/NS is paused"},
	},
	"what does not evict takes nobody": {
		before:  podOn("none", "", ""),
		preview: []string{"node", "NODE", "KEY:NoSchedule", "KEY:PreferNoSchedule"}, write: []string{"taint", "node", "NODE", "KEY:NoSchedule", "KEY:PreferNoSchedule"},
		says: []string{"evicts no pods"},
	},
	"a taint that goes ends what is pending": {
		before: podOn("while", forSeconds(60), ""), first: []string{"taint", "node", "NODE", "KEY:NoExecute"},
		preview: []string{"node", "NODE", "KEY-"}, write: []string{"taint", "node", "NODE", "KEY-"},
		says: []string{"evicts no pods; ends 1 pending eviction"},
	},
	"another value comes to who tolerated the old one": {
		before: podOn("fan", "{key: KEY, value: fan, effect: NoExecute}", "") + podOn("any", forever, ""), first: []string{"taint", "node", "NODE", "KEY=fan:NoExecute"},
		preview: []string{"node", "NODE", "KEY=disk:NoExecute"}, write: []string{"taint", "--overwrite", "node", "NODE", "KEY=disk:NoExecute"},
		goes: map[string]int{"fan": 0},
	},
	"a manifest of a node says the same": {
		before:   podOn("none", "", "") + podOn("ever", forever, ""),
		preview:  []string{"-f", "FILE"},
		manifest: "{apiVersion: v1, kind: Node, metadata: {name: NODE}, spec: {taints: [{key: KEY, effect: NoExecute}]}}",
		write:    []string{"apply", "-f", "FILE", "--server-side", "--force-conflicts"}, goes: map[string]int{"none": 0},
	},
	"a TaintPolicy comes to nodes that there are": {
		before: podOn("none", "", "") + podOn("while", forSeconds(5), ""), first: []string{"label", "node", "NODE", "preview=NS"},
		preview: []string{"-f", "FILE"},
		manifest: `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: NS}
spec:
  taints: [{key: KEY}]
  register: [{nodeSelector: {matchLabels: {preview: NS}}, reconcile: true, taints: [{key: KEY, effect: NoExecute}]}]`,
		write: []string{"apply", "-f", "FILE"}, goes: map[string]int{"none": 0, "while": 5},
	},
}

// devicesOf publishes three devices.
const devicesOf = `
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: DRIVER}
spec: {selectors: [{cel: {expression: 'device.driver == "DRIVER"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: NS}
spec:
  driver: DRIVER
  allNodes: true
  pool: {name: pool, generation: 1, resourceSliceCount: 1}
  devices: [{name: a, attributes: {name: {string: a}}}, {name: b, attributes: {name: {string: b}}}, {name: c, attributes: {name: {string: c}}}]
`

// userOf is a pod with a device, by a claim of its name.
func userOf(name, device, tolerations string) string {
	return fmt.Sprintf(`
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: NS}
spec:
  devices:
    requests:
    - name: device
      exactly:
        deviceClassName: DRIVER
        selectors: [{cel: {expression: 'device.attributes["DRIVER"].name == "%[2]s"'}}]
        tolerations: [%[3]s]
`, name, device, tolerations) + sharerOf(name, name)
}

// sharerOf is a pod with a claim.
func sharerOf(name, claim string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: NS}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  resourceClaims: [{name: device, resourceClaimName: %s}]
  containers: [{name: c, image: image, resources: {claims: [{name: device}]}}]
`, name, deviceNode, claim)
}

// onDevices are the scenarios in which devices are tainted.
var onDevices = map[string]scenario{
	"by a rule, who uses the device goes": {
		before:  devicesOf + userOf("a", "a", "") + userOf("b", "b", ""),
		preview: []string{"device", "DRIVER/pool/a", "KEY:NoExecute"}, write: []string{"tollgate", "taint", "device", "DRIVER/pool/a", "KEY:NoExecute", "--yes"},
		goes: map[string]int{"a": 0},
	},
	"by the tolerations of claims": {
		before:  devicesOf + userOf("a", "a", forSeconds(6)) + userOf("b", "b", forever) + userOf("c", "c", "{key: KEY, value: disk, effect: NoExecute}"),
		preview: []string{"device", "DRIVER", "KEY=fan:NoExecute"}, write: []string{"tollgate", "taint", "device", "DRIVER", "KEY=fan:NoExecute", "--yes"},
		goes: map[string]int{"a": 6, "c": 0},
	},
	"who shares a claim goes with the others": {
		before:  devicesOf + userOf("a", "a", "") + sharerOf("a-too", "a") + userOf("b", "b", ""),
		preview: []string{"device", "DRIVER/pool/a", "KEY:NoExecute"}, write: []string{"tollgate", "taint", "device", "DRIVER/pool/a", "KEY:NoExecute", "--yes"},
		goes: map[string]int{"a": 0, "a-too": 0},
	},
	"by a patch, those go whose devices an expression selects": {
		before:  devicesOf + userOf("a", "a", "") + userOf("b", "b", ""),
		preview: []string{"device", "--class", "DRIVER", "--selector", `device.attributes["DRIVER"].name in ["b", "c"]`, "KEY:NoExecute"},
		write:   []string{"tollgate", "taint", "device", "--class", "DRIVER", "--selector", `device.attributes["DRIVER"].name in ["b", "c"]`, "KEY:NoExecute", "--yes"},
		goes:    map[string]int{"b": 0},
	},
	"a patch from a manifest": {
		before: devicesOf + userOf("a", "a", "") + userOf("b", "b", forSeconds(5)), preview: []string{"-f", "FILE"},
		manifest: `
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: NS}
spec: {devices: {filter: {driver: DRIVER}, taints: [{key: KEY, effect: NoExecute}]}}`,
		write: []string{"apply", "-f", "FILE"}, goes: map[string]int{"a": 0, "b": 5},
	},
	"the effect None takes nobody, and it is said whom another would": {
		before:  devicesOf + userOf("a", "a", ""),
		preview: []string{"device", "DRIVER", "KEY:None"}, write: []string{"tollgate", "taint", "device", "DRIVER", "KEY:None", "--yes"},
		says: []string{"evicts no pods: with the effect NoExecute, it would evict 1 pod"},
	},
	"a rule from a manifest that gets a harder effect": {
		before: devicesOf + userOf("a", "a", "") + `
---
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: NS}
spec: {deviceSelector: {driver: DRIVER}, taint: {key: KEY, effect: NoSchedule}}`,
		preview:  []string{"-f", "FILE"},
		manifest: "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: NS}, spec: {deviceSelector: {driver: DRIVER}, taint: {key: KEY, effect: NoExecute}}}",
		write:    []string{"apply", "-f", "FILE", "--server-side", "--force-conflicts"}, goes: map[string]int{"a": 0},
	},
	"what a driver publishes": {
		before: devicesOf + userOf("a", "a", forSeconds(5)) + userOf("b", "b", ""), preview: []string{"-f", "FILE"},
		manifest: strings.ReplaceAll(devicesOf[strings.LastIndex(devicesOf, "---"):], "{name: a, ", "{name: a, taints: [{key: KEY, effect: NoExecute}], "),
		write:    []string{"apply", "-f", "FILE", "--server-side", "--force-conflicts"}, goes: map[string]int{"a": 5},
	},
	"an unused device takes nobody": {
		before:  devicesOf + userOf("a", "a", ""),
		preview: []string{"device", "DRIVER/pool/c", "KEY:NoExecute"}, write: []string{"tollgate", "taint", "device", "DRIVER/pool/c", "KEY:NoExecute", "--yes"},
		says: []string{"evicts no pods"},
	},
}

func TestWhoIsForetoldToGoGoes(t *testing.T) {
	t.Parallel()
	node := nodeOfDevices
	for sentence, c := range onNodes {
		node++
		s := newPreviewSite(t, controlplane.NodeName(node))
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.play(t, s)
		})
	}
	for sentence, c := range onDevices {
		s := newPreviewSite(t, deviceNode)
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.play(t, s)
		})
	}
}

// play takes the preview, writes, and looks who leaves.
func (c *scenario) play(t *testing.T, s *previewSite) {
	t.Helper()
	kubectl(t, "create", "-f", s.file(t, c.before))
	s.waitRun(t)
	if len(c.first) > 0 {
		kubectl(t, s.filled(c.first)...)
	}
	file := s.file(t, c.manifest)
	named := func(arguments []string) []string {
		var all []string
		for _, argument := range s.filled(arguments) {
			all = append(all, strings.ReplaceAll(argument, "FILE", file))
		}
		return all
	}
	f := s.preview(t, named(c.preview)...)
	c.requireForetold(t, s, &f)
	before, err := s.alive(t.Context())
	require.NoError(t, err)

	from := time.Now()
	if write := named(c.write); write[0] == "tollgate" {
		_, notes, err := tollgate(t, write[1:]...)
		require.NoError(t, err, notes)
	} else {
		kubectl(t, write...)
	}
	to := time.Now()
	if len(c.held) > 0 {
		s.requireLeft(t, before, nil, from, to)
		from = time.Now()
		kubectl(t, "patch", "evictionpolicy", s.namespace, "--type=merge", "-p", `{"spec": {"paused": false}}`)
		to = time.Now()
	}
	s.requireLeft(t, before, c.goes, from, to)
}

// requireForetold fails unless a preview says what the scenario wants.
func (c *scenario) requireForetold(t *testing.T, s *previewSite, f *foretold) {
	t.Helper()
	require.Len(t, f.Previews, 1)
	p := &f.Previews[0]
	for _, part := range c.says {
		require.Contains(t, p.Summary, s.fill(part))
	}
	if p.Mere {
		require.Zero(t, f.Going)
		return
	}
	goes := map[string]int{}
	for _, pod := range p.Pods {
		require.Equal(t, s.namespace, pod.Namespace)
		goes[pod.Name] = pod.WaitSeconds
		require.Equal(t, len(c.held) > 0, pod.Held)
	}
	want := map[string]int{}
	maps.Copy(want, c.goes)
	require.Equal(t, want, goes)
	require.Equal(t, len(goes), f.Going)
}
