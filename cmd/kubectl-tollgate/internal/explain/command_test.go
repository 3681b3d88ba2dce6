package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// serves is what an API server serves, by group and version.
type serves map[string][]string

var (
	commandPlain = serves{"resource.k8s.io/v1": {"resourceslices", "deviceclasses", "resourceclaims", "devicetaintrules"}}
	tollgate     = serves{
		"resource.k8s.io/v1":    commandPlain["resource.k8s.io/v1"],
		"tollgate.dev/v1alpha1": {"evictionpolicies", "resourceslicepatches", "taintpolicies", "tolerationpolicies", "placementpolicies", "gatepolicies"},
	}
)

// dynamicKinds are the kinds without types, by kind.
func dynamicKinds() map[string]schema.GroupVersionResource {
	kinds := map[string]schema.GroupVersionResource{"DeviceTaintRule": {Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}}
	for kind, resource := range map[string]string{
		"EvictionPolicy": "evictionpolicies", "ResourceSlicePatch": "resourceslicepatches", "TaintPolicy": "taintpolicies",
		"TolerationPolicy": "tolerationpolicies", "PlacementPolicy": "placementpolicies", "GatePolicy": "gatepolicies",
	} {
		kinds[kind] = schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: resource}
	}
	return kinds
}

// fakes are the clients of a cluster that serves some kinds.
type fakes struct {
	typed  *fake.Clientset
	custom *dynamicfake.FakeDynamicClient
}

func newFakes(tb testing.TB, served serves) *fakes {
	tb.Helper()
	f := &fakes{typed: fake.NewClientset()}
	discovery, ok := f.typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(tb, ok)
	for version, resources := range served {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, resource := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
		}
		discovery.Resources = append(discovery.Resources, list)
	}
	lists := map[schema.GroupVersionResource]string{}
	for kind, resource := range dynamicKinds() {
		lists[resource] = kind + "List"
	}
	f.custom = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	return f
}

func (f *fakes) clients() *cli.Clients {
	return &cli.Clients{Kubernetes: f.typed, Dynamic: f.custom}
}

// add adds objects that are written as YAML.
func (f *fakes) add(t *testing.T, texts ...string) *fakes {
	t.Helper()
	for _, text := range texts {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		if resource, found := dynamicKinds()[object.GetKind()]; found {
			_, err := f.custom.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
			continue
		}
		raw, err := object.MarshalJSON()
		require.NoError(t, err)
		typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		require.NoError(t, err)
		require.NoError(t, f.typed.Tracker().Add(typed))
	}
	return f
}

// forbid refuses to list a resource.
func (f *fakes) forbid(resource string) *fakes {
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("not yours"))
	}
	f.typed.PrependReactor("*", resource, refuse)
	f.custom.PrependReactor("*", resource, refuse)
	return f
}

const (
	tainted = `
apiVersion: v1
kind: Node
metadata: {name: n-1}
spec: {taints: [{key: dedicated, value: x, effect: NoSchedule}]}
`
	commandWaiting = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ml, uid: u, creationTimestamp: "2026-03-01T11:55:00Z"}
spec:
  containers: [{name: c, image: i}]
  tolerations: [{key: dedicated, value: blue}]
  resourceClaims: [{name: g, resourceClaimName: gpu}]
`
	namespace = `
apiVersion: v1
kind: Namespace
metadata: {name: ml}
`
	gpu = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus, allocationMode: ExactCount, count: 1}}]}}
`
	commandGpus = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpus}
`
	slice = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n-1
  pool: {name: n-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
`
	rule = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: hot}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: hot, effect: NoSchedule}}
`
	grants = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: dedicated}
spec: {taints: [{key: dedicated}], grants: [{namespaces: [ml]}]}
`
)

// ask returns what is written to the two streams.
func ask(t *testing.T, f *fakes, kind, name, output string) (out, notes string, err error) {
	t.Helper()
	var text, said bytes.Buffer
	of, err := questionOf([]string{kind, name})
	require.NoError(t, err)
	of.namespace, of.lease, of.now = "ml", "gates", noon
	err = show(t.Context(), f.clients(), of, output, &text, &said)
	return text.String(), said.String(), err
}

func TestAnEventThatSeveralRequestsReturnIsShownOnce(t *testing.T) {
	t.Parallel()
	held := func(name, reason string, minute int) corev1.Event {
		return corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}, Reason: reason, Message: name,
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n-1"}, LastTimestamp: metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute)),
		}
	}
	f, requests := newFakes(t, tollgate).add(t, tainted), 0
	// Each request returns both events. The first of them is renewed before each.
	f.typed.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		requests++
		return true, &corev1.EventList{Items: []corev1.Event{held("renewed", "EvictionHeld", -10*(4-requests)), held("other", "EvictionReleased", -15)}}, nil
	})
	out, _, err := ask(t, f, kindNode, "n-1", "json")
	require.NoError(t, err)
	require.Equal(t, 3, requests)
	var node Node
	require.NoError(t, json.Unmarshal([]byte(out), &node))
	require.Len(t, node.Events, 2)
	require.Equal(t, []string{"renewed", "other"}, []string{node.Events[0].Message, node.Events[1].Message})
}

func TestExplainReadsWhatTheAnswerFollowsFrom(t *testing.T) {
	t.Parallel()
	f := newFakes(t, tollgate).add(t, tainted, commandWaiting, namespace, gpu, commandGpus, slice, rule, grants)
	out, notes, err := ask(t, f, kindPod, "web", "json")
	require.NoError(t, err)
	require.Contains(t, notes, "note: Tollgate does not run here (there is no Lease gates/tollgate)")
	var got Pod
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "Pending: claim gpu cannot be allocated: request r asks for 1 of 1 device (DeviceClass gpus), of which 1 has taints that it does not tolerate: hot:NoSchedule (DeviceTaintRule hot; 1 device); the only node has taints that it does not tolerate: dedicated=x:NoSchedule (node n-1; its toleration dedicated=blue has another value).", got.Answer)
	require.Equal(t, []Ruling{{Toleration: "dedicated=blue", Policy: "dedicated", Granted: true, Allowed: "allowed in namespaces ml"}}, got.Tolerations)

	for _, output := range []string{"text", "wide", "yaml", "json"} {
		for kind, name := range map[string]string{kindPod: "web", kindClaim: "gpu", kindNode: "n-1", kindDevice: "gpu.example.com/n-1/gpu-0"} {
			out, _, err := ask(t, f, kind, name, output)
			require.NoError(t, err)
			require.NotContains(t, out, "ot found", "%s %s", kind, output)
		}
	}
}

func TestExplainOfAnEmptyClusterSaysSo(t *testing.T) {
	t.Parallel()
	for _, served := range []serves{nil, commandPlain, tollgate} {
		for kind, want := range map[string]string{
			kindPod:    "Not found: namespace ml has no pod a/b/c, and no event tells of one (events are kept for an hour).",
			kindClaim:  "Not found: namespace ml has no ResourceClaim a/b/c.",
			kindNode:   "Not found: the cluster has no node a/b/c.",
			kindDevice: "Not found: no ResourceSlice publishes device a/b/c.",
		} {
			out, _, err := ask(t, newFakes(t, served), kind, "a/b/c", "wide")
			require.NoError(t, err)
			require.Contains(t, out, want)
		}
	}
}

func TestExplainWithoutPermissionsSaysWhatToAskFor(t *testing.T) {
	t.Parallel()
	for resource, kind := range map[string]string{"pods": kindPod, "nodes": kindNode} {
		_, _, err := ask(t, newFakes(t, tollgate).add(t, tainted, commandWaiting, namespace).forbid(resource), kind, "web", "text")
		require.ErrorContains(t, err, "with the verb list on "+resource)
		require.Equal(t, cli.ExitError, cli.ExitCode(err))
	}
	_, notes, err := ask(t, newFakes(t, tollgate).add(t, tainted, commandWaiting, namespace).forbid("nodes"), kindPod, "web", "text")
	require.NoError(t, err)
	require.Contains(t, notes, "note: you may not list nodes: ")
	for _, resource := range []string{"events", "namespaces", "resourceclaims", "resourceslices", "deviceclasses", "tolerationpolicies", "devicetaintrules", "poddisruptionbudgets", "leases"} {
		out, notes, err := ask(t, newFakes(t, tollgate).add(t, tainted, commandWaiting, namespace, gpu, commandGpus, slice, grants).forbid(resource), kindPod, "web", "text")
		require.NoError(t, err, resource)
		require.Contains(t, out, "dedicated=x:NoSchedule", resource)
		require.Contains(t, notes, "note: you may not ", resource)
		require.Contains(t, notes, resource)
	}
}

func TestExplainTellsNothingUnreadAsAbsent(t *testing.T) {
	t.Parallel()
	gated := strings.Replace(commandWaiting, "spec:", "spec:\n  schedulingGates: [{name: g}]", 1)
	out, _, err := ask(t, newFakes(t, tollgate).add(t, tainted, gated, namespace).forbid("gatepolicies"), kindPod, "web", "text")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(out), " "), "it is not known which GatePolicy guards it")
	out, _, err = ask(t, newFakes(t, tollgate).add(t, commandWaiting, namespace).forbid("nodes"), kindPod, "web", "text")
	require.NoError(t, err)
	require.NotContains(t, out, "no node")
	out, _, err = ask(t, newFakes(t, tollgate).add(t, tainted).forbid("resourceslices"), kindDevice, "gpu.example.com/n-1/gpu-0", "text")
	require.NoError(t, err)
	require.Contains(t, out, "It is not known whether there is a device")
}

// lease is that of a Tollgate in a namespace of its own, in some mode.
func lease(mode string) string {
	return `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: tollgate
  namespace: gates
  labels: {tollgate.dev/eviction-mode: ` + mode + `, tollgate.dev/comparison-operators: "false", tollgate.dev/max-hold: 0s, tollgate.dev/eviction-features: EvictionPolicies.NodeTaintEviction.DeviceTaintEviction}
spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: "2026-03-01T12:00:00.000000Z"}
`
}

func TestExplainSaysWhoEvictsInEachMode(t *testing.T) {
	t.Parallel()
	const sick = `
apiVersion: v1
kind: Node
metadata: {name: n-1}
spec: {taints: [{key: sick, effect: NoExecute, timeAdded: "2026-03-01T11:59:00Z"}]}
`
	placed := strings.Replace(commandWaiting, "spec:", "spec:\n  nodeName: n-1", 1)
	const paused = `
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: stop, uid: stop}
spec: {taints: [{key: sick}], paused: true}
`
	for mode, want := range map[string]struct {
		by    string
		state State
	}{
		"Replace": {"Tollgate", Held},
		"Observe": {"Kubernetes", Due},
		"Window":  {"Kubernetes", Due},
	} {
		out, notes, err := ask(t, newFakes(t, tollgate).add(t, sick, placed, namespace, paused, lease(mode)), kindPod, "web", "json")
		require.NoError(t, err)
		require.Empty(t, notes)
		var got Pod
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, want.by, got.Eviction.By, mode)
		require.Equal(t, want.state, got.State, mode)
	}
}

func TestExplainTakesKindsAsKubectlDoes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given      []string
		kind, name string
	}{
		{[]string{"pod", "web"}, kindPod, "web"},
		{[]string{"po", "web"}, kindPod, "web"},
		{[]string{"pod/web"}, kindPod, "web"},
		{[]string{"resourceclaim", "c"}, kindClaim, "c"},
		{[]string{"no", "n"}, kindNode, "n"},
		{[]string{"device/a/b/c"}, kindDevice, "a/b/c"},
	} {
		of, err := questionOf(test.given)
		require.NoError(t, err)
		require.Equal(t, test.kind, of.kind)
		require.Equal(t, test.name, of.name)
	}
	for _, given := range [][]string{nil, {"pod"}, {"web"}, {"service", "s"}, {"pod", "a", "b"}, {"pod", ""}} {
		_, err := questionOf(given)
		require.ErrorContains(t, err, "want a kind and a name, such as pod NAME", "%v", given)
	}
	_, err := questionOf([]string{"device", "a/b"})
	require.ErrorContains(t, err, `device is "a/b", want DRIVER/POOL/DEVICE`)
	of, err := questionOf([]string{"device", "d/pool/with/slashes/x"})
	require.NoError(t, err)
	require.Equal(t, device.ID{Driver: "d", Pool: "pool/with/slashes", Name: "x"}, of.device)

	cmd := NewCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"pod", "-o", "table"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "want a kind and a name, such as pod NAME: pod, claim, node, device")
	cmd.SetArgs([]string{"pod", "web", "-o", "table"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), `--output is "table", want one of text, wide, yaml, json`)
}

// BenchmarkExplain explains a pod among 10,000 pods on 1,000 nodes.
func BenchmarkExplain(b *testing.B) {
	f := newFakes(b, tollgate)
	const nodes, pods = 1000, 10000
	list := &corev1.PodList{}
	for i := range pods {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Namespace: "ml", Labels: map[string]string{"app": "web"}}}
		pod.UID = types.UID(pod.Name)
		pod.Spec.NodeName = fmt.Sprintf("n-%d", i%nodes)
		list.Items = append(list.Items, pod)
	}
	one := &list.Items[0]
	one.Spec.NodeName = ""
	one.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: one.Labels},
	}}
	all := &corev1.NodeList{}
	for i := range nodes {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%d", i), Labels: map[string]string{"zone": fmt.Sprintf("z%d", i%5)}}}
		if i%5 == 0 {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: fmt.Sprintf("v%d", i%50), Effect: corev1.TaintEffectNoSchedule}}
		}
		all.Items = append(all.Items, node)
	}
	answer := func(object runtime.Object) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) { return true, object, nil }
	}
	f.typed.PrependReactor("list", "pods", answer(list))
	f.typed.PrependReactor("list", "nodes", answer(all))
	b.ReportAllocs()
	for b.Loop() {
		got, _, err := explain(context.Background(), f.clients(), question{kind: kindPod, namespace: "ml", name: "web-0", now: noon}) //nolint:usetesting // The context of a benchmark ends with it.
		require.NoError(b, err)
		require.IsType(b, &Pod{}, got)
	}
}
