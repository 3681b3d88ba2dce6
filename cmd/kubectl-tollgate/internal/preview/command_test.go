package preview

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

// podText is a pod on node-7 that came an hour before noon.
func podText(namespace, name, controller, tolerations, more string) string {
	owners := "[]"
	if controller != "" {
		kind, of, _ := strings.Cut(controller, "/")
		owners = fmt.Sprintf("[{apiVersion: apps/v1, kind: %s, name: %s, uid: %s, controller: true}]", kind, of, of)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, uid: %s.%s, labels: {app: %s}, creationTimestamp: "2026-03-01T11:00:00Z", ownerReferences: %s}
spec: {nodeName: node-7, tolerations: [%s]%s}`, name, namespace, namespace, name, namespace, owners, tolerations, more)
}

// world has pods that go at once, later and never, on a node that has a taint already.
var world = []string{
	`{apiVersion: v1, kind: Node, metadata: {name: node-7, uid: node-7, labels: {zone: east}}, spec: {taints: [{key: old, effect: NoExecute, timeAdded: "2026-03-01T11:58:00Z"}]}}`,
	`{apiVersion: v1, kind: Node, metadata: {name: node-8, uid: node-8, labels: {zone: east}}}`,
	`{apiVersion: v1, kind: Namespace, metadata: {name: web}}`,
	podText("web", "a", "ReplicaSet/web-5d", "{key: old, operator: Exists}, {key: down, operator: Exists, effect: NoExecute, tolerationSeconds: 300}", ""),
	podText("web", "b", "ReplicaSet/web-5d", "{key: old, operator: Exists}, {key: down, value: soft, effect: NoExecute, tolerationSeconds: 60}", ""),
	podText("batch", "job-x7", "", "{key: old, operator: Exists}", ""),
	podText("batch", "pending", "Job/pending", "{key: old, operator: Exists, tolerationSeconds: 600, effect: NoExecute}", ""),
	podText("kube-system", "agent", "DaemonSet/agent", "{operator: Exists}", ""),
	podText("data", "db-0", "StatefulSet/db", "{key: old, operator: Exists}", ""),
	podText("ml", "train", "Job/train", "{operator: Exists}", ", resourceClaims: [{name: gpu, resourceClaimName: gpu}]"),
	`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web-budget, namespace: web, uid: b}, spec: {selector: {matchLabels: {app: web}}}}`,
	`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus, uid: gpus}
spec:
  driver: gpu.example.com
  nodeName: node-7
  pool: {name: node-7, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: A100}}}, {name: gpu-1, attributes: {model: {string: H100}}}]`,
	`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: a100}
spec: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'A100'"}}]}`,
	`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml, uid: gpu}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node-7, device: gpu-0, tolerations: [{key: cooling, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]}]}}
  reservedFor: [{resource: pods, name: train, uid: ml.train}]`,
	`
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: keep-data, uid: keep-data}
spec: {taints: [{key: "*"}], protect: {podSelector: {matchLabels: {app: data}}}}`,
}

// manyKinds is a manifest of all kinds that taint something, and one that does not.
const manyKinds = `
apiVersion: v1
kind: Node
metadata: {name: node-7}
spec: {taints: [{key: down, effect: NoExecute}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-9}
spec: {taints: [{key: down, effect: NoExecute}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-7, labels: {zone: west}}
---
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: DeviceTaintRule
  metadata: {name: hot}
  spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: hot, effect: NoExecute}}
- apiVersion: resource.k8s.io/v1alpha3
  kind: DeviceTaintRule
  metadata: {name: warm}
  spec: {deviceSelector: {device: gpu-0}, taint: {key: warm, effect: None}}
- apiVersion: resource.k8s.io/v1alpha3
  kind: DeviceTaintRule
  metadata: {name: ancient}
  spec: {deviceSelector: {deviceClassName: a100}, taint: {key: warm, effect: NoExecute}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus}
spec:
  driver: gpu.example.com
  nodeName: node-7
  pool: {name: node-7, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, taints: [{key: broken, effect: NoExecute}]}, {name: gpu-1}]
---
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: recall}
spec: {devices: {filter: {deviceClassName: a100}, taints: [{key: recall, effect: NoExecute}]}}
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: dedicated}
spec:
  taints: [{key: dedicated}]
  register:
  - nodeSelector: {matchLabels: {zone: east}}
    reconcile: true
    taints: [{key: dedicated, value: infra, effect: NoExecute}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`

// result is what a command left behind.
type result struct {
	out, notes string
	err        error
}

// runs runs a command line on a cluster.
func runs(t *testing.T, clients *cli.Clients, stdin string, arguments ...string) result {
	t.Helper()
	cmd := newPreview(edge{clock: clocktesting.NewFakePassiveClock(noon), connect: func(io.Writer) (*cli.Clients, error) { return clients, nil }})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out, notes bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs(append([]string{}, arguments...)) // With nil it would take those of the test.
	err := cmd.ExecuteContext(t.Context())
	return result{out.String(), notes.String(), err}
}

// whole returns what was written with its sentences in one line each.
func (r *result) whole() string { return strings.ReplaceAll(r.out, "\n  ", " ") }

func tollgate(tb testing.TB) *cli.Clients {
	tb.Helper()
	return clientsOf(tb, allKinds, append(world, lease(settings.DefaultEviction(), noon))...)
}

func TestWritesWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdin     string
		arguments []string
	}{
		"node":            {"", []string{"node", "node-7", "down=hard:NoExecute"}},
		"node-wide":       {"", []string{"node", "node-7", "down=soft:NoExecute", "-o", "wide"}},
		"node-json":       {"", []string{"node", "node-7", "down=soft:NoExecute", "-o", "json"}},
		"nodes":           {"", []string{"node", "-l", "zone=east", "down:NoExecute"}},
		"node-removal":    {"", []string{"node", "node-7", "old-", "-o", "wide"}},
		"node-noschedule": {"", []string{"node", "node-7", "down:NoSchedule"}},
		"device":          {"", []string{"device", "gpu.example.com/node-7/gpu-0", "hot:NoExecute"}},
		"device-wide":     {"", []string{"device", "gpu.example.com", "cooling:NoExecute", "-o", "wide"}},
		"device-yaml":     {"", []string{"device", "gpu.example.com", "cooling:NoExecute", "-o", "yaml"}},
		"device-class":    {"", []string{"device", "--class", "a100", "hot:NoExecute"}},
		"device-none":     {"", []string{"device", "gpu.example.com/node-7", "hot:None"}},
		"device-unused":   {"", []string{"device", "gpu.example.com/node-7/gpu-1", "hot:NoExecute"}},
		"file":            {manyKinds, []string{"-f", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runs(t, tollgate(t), c.stdin, c.arguments...)
			require.NoError(t, r.err)
			require.Empty(t, r.notes)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(r.out), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), r.out)
			if !slices.Contains(c.arguments, "-o") {
				for line := range strings.Lines(r.out) {
					require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), cli.Width)
				}
			}
		})
	}
}

func TestPodsCountOnceForFailOver(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"more":                    {[]string{"node", "node-7", "down:NoExecute", "--fail-over", "1"}, "pods that would go: 4, more than the 1 of --fail-over"},
		"as many":                 {[]string{"node", "node-7", "down:NoExecute", "--fail-over", "4"}, ""},
		"none are let go":         {[]string{"device", "gpu.example.com", "hot:NoExecute", "--fail-over", "0"}, "pods that would go: 1, more than the 0 of --fail-over"},
		"none go":                 {[]string{"node", "node-7", "old-", "--fail-over", "0"}, ""},
		"nobody goes for None":    {[]string{"device", "gpu.example.com", "hot:None", "--fail-over", "0"}, ""},
		"not asked":               {[]string{"node", "node-7", "down:NoExecute"}, ""},
		"the same pod three ways": {[]string{"-f", "-", "--fail-over", "5"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := runs(t, tollgate(t), manyKinds, c.arguments...)
			if c.want == "" {
				require.NoError(t, r.err)
				return
			}
			require.EqualError(t, r.err, c.want)
			require.Equal(t, cli.ExitVerdict, cli.ExitCode(r.err))
			require.NotEmpty(t, r.out)
		})
	}
}

func TestTheModeDecidesWhomPoliciesProtect(t *testing.T) {
	t.Parallel()
	said := settings.DefaultEviction()
	said.Mode = configv1alpha1.EvictionWindow
	require.Contains(t, runs(t, tollgate(t), "", "node", "node-7", "down:NoExecute").out, "not among them: 1 protected by EvictionPolicy/keep-data")
	require.Contains(t, runs(t, clientsOf(t, allKinds, append(world, lease(said, noon))...), "", "node", "node-7", "down:NoExecute").out, "evicts 5 pods in 3 namespaces")
	said.Mode = configv1alpha1.EvictionObserve
	observing := clientsOf(t, allKinds, append(world, lease(said, noon))...)
	require.Equal(t, "device/(class a100): evicts no pods: in another eviction mode than Observe, it would evict 1 pod in\n"+
		"  1 namespace: 1 now\n"+
		"NAMESPACE  PODS  NOW  LATER  LATEST  GUARDED  NO CONTROLLER\n"+
		"ml         1     1    0      now     0        0\n", runs(t, observing, "", "device", "--class", "a100", "hot:NoExecute").out)
}

func TestAnEmptyClusterLosesNobody(t *testing.T) {
	t.Parallel()
	empty := clientsOf(t, served{}, `{apiVersion: v1, kind: Node, metadata: {name: node-7}}`)
	r := runs(t, empty, "", "node", "node-7", "down:NoExecute")
	require.NoError(t, r.err)
	require.Equal(t, "node/node-7: evicts no pods\n", r.out)
	require.Equal(t, "note: Tollgate does not run here (there is no Lease tollgate-system/tollgate): the controllers of Kubernetes evict, past PodDisruptionBudgets and EvictionPolicies\n", r.notes)
	r = runs(t, empty, "", "device", "gpu.example.com", "hot:NoExecute")
	require.EqualError(t, r.err, `device "gpu.example.com": no ResourceSlice publishes such a device; there are no published devices`)
	require.Equal(t, cli.ExitError, cli.ExitCode(r.err))
	require.Empty(t, r.out, "nothing is previewed, which is no all-clear")
}

func TestAClusterWithoutTollgateIsForetoldAsKubernetesDoesIt(t *testing.T) {
	t.Parallel()
	r := runs(t, clientsOf(t, plainKinds, world[:len(world)-1]...), "", "node", "node-7", "down:NoExecute")
	require.NoError(t, r.err)
	require.Contains(t, r.whole(), "evicts 5 pods in 3 namespaces: 4 now, 1 within 300s; 2 guarded by a PodDisruptionBudget, 1 without a controller, 1 that had to leave later before")
	require.Contains(t, r.notes, "Tollgate does not run here")
	r = runs(t, clientsOf(t, plainKinds, world[:len(world)-1]...), "", "device", "gpu.example.com", "hot:NoExecute")
	require.NoError(t, r.err)
	require.Contains(t, r.out, "device/gpu.example.com: evicts 1 pod in 1 namespace: 1 now\n")
}

func TestTheEffectNoneEndsEvictionsThatArePending(t *testing.T) {
	t.Parallel()
	rule := func(effect string) string {
		return "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: hot, uid: hot}, spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: hot, effect: " + effect + ", timeAdded: \"2026-03-01T11:59:00Z\"}}}"
	}
	patch := func(effect string) string {
		return "{apiVersion: tollgate.dev/v1alpha1, kind: ResourceSlicePatch, metadata: {name: recall, uid: recall}, spec: {devices: {filter: {driver: gpu.example.com}, taints: [{key: recall, effect: " + effect + "}]}}}"
	}
	written := "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: recall-1, uid: recall-1, labels: {tollgate.dev/resource-slice-patch: recall}, ownerReferences: [{apiVersion: tollgate.dev/v1alpha1, kind: ResourceSlicePatch, name: recall, uid: recall, controller: true}]}, spec: {deviceSelector: {driver: gpu.example.com, pool: node-7, device: gpu-0}, taint: {key: recall, effect: NoExecute, timeAdded: \"2026-03-01T11:59:00Z\"}}}"
	for sentence, c := range map[string]struct {
		stands  []string
		applied string
		want    string
	}{
		"of a rule":    {[]string{rule("NoExecute")}, rule("None"), "devicetaintrule/hot: evicts no pods; ends 1 pending eviction\n"},
		"of a patch":   {[]string{patch("NoExecute"), written}, patch("None"), "resourceslicepatch/recall: evicts no pods; ends 1 pending eviction\n"},
		"none to end":  {[]string{rule("None")}, rule("None"), "devicetaintrule/hot: evicts no pods: with the effect NoExecute, it would evict 1 pod"},
		"no such rule": {nil, rule("None"), "devicetaintrule/hot: evicts no pods: with the effect NoExecute, it would evict 1 pod"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := clientsOf(t, allKinds, append(append([]string{lease(settings.DefaultEviction(), noon)}, world...), c.stands...)...)
			r := runs(t, clients, c.applied, "-f", "-")
			require.NoError(t, r.err)
			require.Contains(t, r.whole(), c.want)
		})
	}
}

func TestWithoutTollgateNobodyRegistersTaints(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, plainKinds, world[:len(world)-1]...)
	_, policy, found := strings.Cut(manyKinds, "kind: TaintPolicy")
	require.True(t, found)
	r := runs(t, clients, "apiVersion: tollgate.dev/v1alpha1\nkind: TaintPolicy"+policy, "-f", "-", "--fail-over", "0")
	require.NoError(t, r.err)
	require.Contains(t, r.whole(), "taintpolicy/dedicated: evicts no pods: with Tollgate in the cluster, it would evict 5 pods")
}

func TestWithoutPermissionsItSaysWhatToAskFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, group string
		arguments       []string
		want            string
	}{
		{"pods", "", []string{"node", "node-7", "down:NoExecute"}, `ask for a ClusterRole with the verb list on pods of API group ""`},
		{"nodes", "", []string{"device", "gpu.example.com", "hot:NoExecute"}, `ask for a ClusterRole with the verb list on nodes of API group ""`},
		{"resourceclaims", "resource.k8s.io", []string{"device", "gpu.example.com", "hot:NoExecute"}, "foretell the taints of device/gpu.example.com: you may not list resourceclaims"},
		{"resourceclaims", "resource.k8s.io", []string{"-f", "-"}, "foretell DeviceTaintRule hot: you may not list resourceclaims"},
		{"deviceclasses", "resource.k8s.io", []string{"device", "--class", "a100", "hot:NoExecute"}, "not all ResourceSlices and DeviceClasses could be read"},
	} {
		clients := tollgate(t)
		typed, ok := clients.Kubernetes.(*fake.Clientset)
		require.True(t, ok)
		typed.PrependReactor("list", c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: c.group, Resource: c.resource}, "", errors.New("eve may not"))
		})
		r := runs(t, clients, manyKinds, c.arguments...)
		require.ErrorContains(t, r.err, c.want)
		require.Equal(t, cli.ExitError, cli.ExitCode(r.err))
	}
}

func TestBudgetsThatAreNotKnownAreNotNone(t *testing.T) {
	t.Parallel()
	clients := tollgate(t)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(t, ok)
	typed.PrependReactor("list", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "", errors.New("eve may not"))
	})
	for output, c := range map[string]struct{ has, lacks string }{
		"table": {`(?m)^web +2 +1 +1 +in 5m0s +<unknown> +0$`, `(?m)in 5m0s +0 `},
		"wide":  {`(?m)^web +a .* tolerated for a while +<unknown> +replicaset/web-5d$`, `<none> +replicaset`},
		"json":  {`"latestSeconds": 300,\n +"withoutController": 0`, `"guarded"`},
	} {
		r := runs(t, clients, "", "node", "node-7", "down=hard:NoExecute", "-o", output)
		require.NoError(t, r.err)
		require.Regexp(t, c.has, r.out)
		require.NotRegexp(t, c.lacks, r.out)
		require.Contains(t, r.notes, "it is not known which pods a PodDisruptionBudget guards")
	}
}

func TestRefusesWhatItCannotForetell(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		stdin     string
		arguments []string
		want      string
	}{
		"nothing":            {"", nil, "nothing to preview: give -f FILE, or ask for a node or a device"},
		"a format":           {"", []string{"node", "node-7", "down:NoExecute", "-o", "xml"}, `--output is "xml", want one of table, wide, yaml, json`},
		"no such node":       {"", []string{"node", "node-9", "down:NoExecute"}, `node "node-9": there is no such node`},
		"no such nodes":      {"", []string{"node", "-l", "zone=west", "down:NoExecute"}, `--selector is "zone=west": there is no such node`},
		"no node":            {"", []string{"node", "down:NoExecute"}, "no node is named: want NAME..., or --selector"},
		"names and labels":   {"", []string{"node", "node-7", "-l", "zone=east", "down:NoExecute"}, "want one of both"},
		"no labels":          {"", []string{"node", "-l", "zone==", "down:NoExecute", "-l", "!"}, `--selector is "!"`},
		"no taint":           {"", []string{"node", "node-7"}, "no taint is given, want NAME... KEY[=VALUE]:EFFECT"},
		"a wrong effect":     {"", []string{"node", "node-7", "down:None"}, `effect is "None"`},
		"no devices":         {"", []string{"device", "hot:NoExecute"}, "no devices are named"},
		"no such device":     {"", []string{"device", "gpu.example.com/node-7/gpu-9", "hot:NoExecute"}, `device "gpu.example.com/node-7/gpu-9": no ResourceSlice publishes such a device; pool "node-7" has the devices gpu-0, gpu-1`},
		"no such pool":       {"", []string{"device", "gpu.example.com/node-9/gpu-0", "hot:NoExecute"}, `driver "gpu.example.com" has the pools node-7`},
		"no such driver":     {"", []string{"device", "gpu.exmaple.com", "hot:NoSchedule"}, `device "gpu.exmaple.com": no ResourceSlice publishes such a device; there are devices of gpu.example.com`},
		"none of a class":    {"", []string{"device", "nic.example.com", "--class", "a100", "hot:NoExecute"}, `device "nic.example.com (class a100)": no ResourceSlice publishes such a device`},
		"no taint of them":   {"", []string{"device", "gpu.example.com"}, "no taint is given, want KEY[=VALUE]:EFFECT"},
		"a wrong one":        {"", []string{"device", "gpu.example.com", "hot:Never"}, `effect is "Never"`},
		"a removal":          {"", []string{"device", "gpu.example.com", "hot-"}, "a taint of a device cannot be taken away here"},
		"a wrong expression": {"", []string{"device", "--selector", "device.", "hot:NoExecute"}, "spec.devices.filter.selectors[0].cel.expression"},
		"an empty file":      {"---\n", []string{"-f", "-"}, "nothing to preview: there are no objects in what -f names"},
		"no YAML":            {"{", []string{"-f", "-"}, "<stdin>:1: "},
		"no object":          {"a: b", []string{"-f", "-"}, "<stdin>:1: apiVersion and kind have to be given: this is no Kubernetes object"},
		"no file":            {"", []string{"-f", "none.yaml"}, "read manifests: stat none.yaml"},
		"an old slice":       {"{apiVersion: resource.k8s.io/v1beta1, kind: ResourceSlice, metadata: {name: s}}", []string{"-f", "-"}, `ResourceSlice s: apiVersion is "resource.k8s.io/v1beta1", want resource.k8s.io/v1`},
		"a wrong field":      {"{apiVersion: v1, kind: Node, metadata: {name: node-7}, spec: {taints: all}}", []string{"-f", "-"}, "read node/node-7: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := runs(t, tollgate(t), c.stdin, c.arguments...)
			require.ErrorContains(t, r.err, c.want)
			require.Empty(t, r.out)
		})
	}
}

func BenchmarkPreview10000Pods(b *testing.B) {
	clients := tollgate(b)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(b, ok)
	pods := &corev1.PodList{}
	for i := range 10_000 {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%50), Name: "pod-" + strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)),
			Labels:          map[string]string{"app": "app-" + strconv.Itoa(i%200)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs-" + strconv.Itoa(i%200), UID: "rs", Controller: new(true)}},
		}}
		pod.Spec.NodeName = "node-7"
		pod.Spec.Tolerations = []corev1.Toleration{
			{Key: "old", Operator: corev1.TolerationOpExists},
			{Key: "down", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(i % 400))},
		}
		pods.Items = append(pods.Items, pod)
	}
	typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pods, nil })
	for _, output := range []string{"table", "wide"} {
		b.Run(output, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cmd := newPreview(edge{clock: clocktesting.NewFakePassiveClock(noon), connect: func(io.Writer) (*cli.Clients, error) { return clients, nil }})
				cmd.SetOut(io.Discard)
				cmd.SetErr(io.Discard)
				cmd.SetArgs([]string{"node", "node-7", "down:NoExecute", "-o", output})
				require.NoError(b, cmd.ExecuteContext(b.Context()))
			}
		})
	}
}
