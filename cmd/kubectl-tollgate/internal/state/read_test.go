package state

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
)

// world is a node with a pod under a budget, one that a policy protects, and one that uses a
// device.
var world = []string{
	`{apiVersion: v1, kind: Node, metadata: {name: node-7, uid: node-7}}`,
	`{apiVersion: v1, kind: Namespace, metadata: {name: web, labels: {tier: front}}}`,
	`{apiVersion: v1, kind: Namespace, metadata: {name: db, labels: {tier: data}}}`,
	`
apiVersion: v1
kind: Pod
metadata: {name: guarded, namespace: web, uid: guarded, labels: {app: web}, creationTimestamp: "2026-03-01T11:00:00Z"}
spec: {nodeName: node-7, tolerations: [{key: down, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}`,
	`
apiVersion: v1
kind: Pod
metadata: {name: protected, namespace: db, uid: protected, labels: {app: db}, creationTimestamp: "2026-03-01T11:00:00Z"}
spec: {nodeName: node-7}`,
	`
apiVersion: v1
kind: Pod
metadata: {name: trainer, namespace: web, uid: trainer, creationTimestamp: "2026-03-01T11:00:00Z"}
spec:
  nodeName: node-7
  tolerations: [{operator: Exists}]
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]`,
	`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: web, uid: b}, spec: {selector: {matchLabels: {app: web}}}}`,
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
metadata: {name: gpu, namespace: web, uid: gpu}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node-7, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: trainer, uid: trainer}]`,
	`
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: hot, uid: hot}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/hot, effect: NoSchedule}}`,
	`
apiVersion: tollgate.dev/v1alpha1
kind: EvictionPolicy
metadata: {name: keep-data, uid: keep-data}
spec: {taints: [{key: down}], namespaceSelector: {matchLabels: {tier: data}}, protect: {podSelector: {matchLabels: {app: db}}}}`,
}

func read(t *testing.T, clients *cli.Clients, wants Wants) *Cluster {
	t.Helper()
	c, err := Read(t.Context(), clients, noon, wants)
	require.NoError(t, err)
	return c
}

// drained returns the preview of a taint on the node of world.
func drained(t *testing.T, c *Cluster) preview.Forecast {
	t.Helper()
	changes, err := c.View().Node(tracker.Node{Name: "node-7"}, tracker.Node{Name: "node-7", Taints: []corev1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}}, noon)
	require.NoError(t, err)
	return c.View().Forecast(noon, changes)
}

func TestWhoMaySeeOneNamespaceIsShownThat(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, allKinds, append(world, lease(settings.DefaultEviction(), noon))...)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(t, ok)
	for _, resource := range []string{"pods", "nodes", "poddisruptionbudgets", "resourceclaims", "namespaces"} {
		typed.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetNamespace() == "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
		})
	}
	_, err := Read(t.Context(), clients, noon, Wants{})
	require.ErrorContains(t, err, "is forbidden: no (ask for")
	c := read(t, clients, Wants{Namespace: "web"})
	require.Equal(t, 2, c.Tracker.Live())
	require.Len(t, c.Tracker.Budgets("web"), 1)
	require.True(t, c.DevicesKnown())
	require.True(t, c.Unread("nodes"))
	require.False(t, c.Unread("pods"))
	set, ok := c.NamespaceLabels("web")
	require.True(t, ok)
	require.Equal(t, "front", set.Get("tier"))
	require.Equal(t, []string{
		`you may not list nodes: which taints nodes have, and which pods leave because of them, is not known (ask for a ClusterRole with the verb list on nodes of API group "")`,
		"you may list resourceclaims in namespace web alone: which devices the claims of others have is not known",
	}, c.Missing())
}

func TestAFeatureThatIsOffLeavesPodsToKubernetes(t *testing.T) {
	t.Parallel()
	for _, nodes := range []bool{true, false} {
		settled := settings.DefaultEviction()
		settled.Nodes, settled.Devices = nodes, !nodes
		f := drained(t, read(t, clientsOf(t, allKinds, append(world, lease(settled, noon))...), Wants{}))
		require.Equal(t, nodes, f.Protected["keep-data"] == 1)
	}
}

func TestForetellsAsTheServerDoes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[configv1alpha1.EvictionMode]string{
		configv1alpha1.EvictionReplace: "evicts 1 pod in 1 namespace: 1 within 300s; 1 guarded by a PodDisruptionBudget, 1 without a controller; not among them: 1 protected by EvictionPolicy/keep-data",
		configv1alpha1.EvictionWindow:  "evicts 2 pods in 2 namespaces: 1 now, 1 within 300s; 1 guarded by a PodDisruptionBudget, 2 without a controller",
		configv1alpha1.EvictionObserve: "evicts 2 pods in 2 namespaces: 1 now, 1 within 300s; 1 guarded by a PodDisruptionBudget, 2 without a controller",
	} {
		settled := settings.DefaultEviction()
		settled.Mode = mode
		c := read(t, clientsOf(t, allKinds, append(world, lease(settled, noon))...), Wants{})
		require.Empty(t, c.Missing())
		require.Equal(t, Tollgate{Installed: true, Told: true, Terms: settled, Leader: "a", Renewed: c.Tollgate.Renewed, Leads: true}, c.Tollgate)
		require.WithinDuration(t, noon, c.Tollgate.Renewed, time.Minute)
		f := drained(t, c)
		require.Equal(t, want, f.String(), mode)
	}
}

func TestDevicesAreFollowed(t *testing.T) {
	t.Parallel()
	c := read(t, clientsOf(t, allKinds, append(world, lease(settings.DefaultEviction(), noon))...), Wants{Selection: true})
	require.True(t, c.DevicesKnown())
	rule, found := c.Tracker.Rule("hot")
	require.True(t, found)
	hotter := rule
	hotter.Taint.Effect = "NoExecute"
	changes, err := c.View().Rule(&rule, hotter, noon)
	require.NoError(t, err)
	f := c.View().Forecast(noon, changes)
	require.Equal(t, "evicts 1 pod in 1 namespace: 1 now; 1 without a controller", f.String())
	require.Equal(t, "v1", c.RuleVersion)
	require.Equal(t, "example.com/hot", c.Rule["hot"].Spec.Taint.Key)

	patch := &v1alpha1.ResourceSlicePatch{}
	patch.Name = "p"
	patch.Spec.Devices.Filter = &v1alpha1.DevicePatchFilter{DeviceClassName: new("a100")}
	patch.Spec.Devices.Taints = []v1alpha1.PatchedTaint{{Key: "example.com/hot", Effect: "NoExecute"}}
	ids, err := c.Selected(t.Context(), patch)
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.Equal(t, "gpu.example.com/node-7/gpu-0", ids[0].String())
	_, err = read(t, clientsOf(t, allKinds), Wants{}).Selected(t.Context(), patch)
	require.EqualError(t, err, "find the devices of ResourceSlicePatch p: not all ResourceSlices and DeviceClasses could be read")
}

func TestKeepsWhatIsWanted(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, allKinds, append(world,
		`{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: t, uid: t}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: t, uid: t}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: ResourceSlicePatch, metadata: {name: p, uid: p}}`)...)
	c := read(t, clients, Wants{
		Policies: true, Node: func(*corev1.Node) bool { return true }, Pod: func(pod *corev1.Pod) bool { return pod.Namespace == "db" },
	})
	require.Len(t, c.Nodes, 1)
	require.Len(t, c.Pods, 1)
	require.Equal(t, "protected", c.Pods[0].Name)
	require.Empty(t, c.Claims)
	require.Len(t, c.TaintPolicies, 1)
	require.Len(t, c.Patches, 1)
	require.NotNil(t, c.Policies.Tolerations)
	labels, ok := c.NamespaceLabels("db")
	require.True(t, ok)
	require.Equal(t, "data", labels.Get("tier"))
	_, ok = c.NamespaceLabels("gone")
	require.False(t, ok)

	require.Empty(t, read(t, clients, Wants{}).TaintPolicies)
}

func TestAnEmptyClusterIsRead(t *testing.T) {
	t.Parallel()
	c := read(t, clientsOf(t, served{}), Wants{Policies: true, Selection: true})
	require.Equal(t, []string{"Tollgate does not run here (there is no Lease tollgate-system/tollgate): the controllers of Kubernetes evict, past PodDisruptionBudgets and EvictionPolicies"}, c.Missing())
	require.False(t, c.Tollgate.Installed)
	require.Zero(t, c.Tollgate.Terms)
	require.Nil(t, c.Foretold())
	require.True(t, c.DevicesKnown(), "nobody has devices")
	require.Zero(t, c.Tracker.Live())
	f := drained(t, c)
	require.Empty(t, f.String())
}

func TestWithoutTollgateItsPoliciesDoNotCount(t *testing.T) {
	t.Parallel()
	c := read(t, clientsOf(t, allKinds, world...), Wants{})
	require.Equal(t, 1, c.Policies.Evictions.Len())
	f := drained(t, c)
	require.Empty(t, f.Protected)
	require.Len(t, f.Pods, 2)
}

func TestSaysWhatTheLeaseDoesNotSay(t *testing.T) {
	t.Parallel()
	old := "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: tollgate, namespace: tollgate-system}\nspec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: \"2026-03-01T12:00:00.000000Z\"}"
	for sentence, c := range map[string]struct{ lease, want string }{
		"an older version":           {old, "Lease tollgate-system/tollgate does not say how Tollgate evicts (label tollgate.dev/eviction-mode is not set): the answer is for the default configuration"},
		"nobody renews it":           {lease(settings.DefaultEviction(), noon.Add(-5*time.Minute)), "no Tollgate leads at the moment (Lease tollgate-system/tollgate is not renewed): what it evicts stays until one does"},
		"a clock that is a bit away": {lease(settings.DefaultEviction(), noon.Add(-30*time.Second)), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			found := read(t, clientsOf(t, allKinds, c.lease), Wants{})
			require.True(t, found.Tollgate.Installed)
			require.Equal(t, settings.DefaultEviction(), found.Tollgate.Terms)
			if c.want == "" {
				require.Empty(t, found.Missing())
			} else {
				require.Equal(t, []string{c.want}, found.Missing())
			}
		})
	}
}

func TestAV25OperatorsCountWhereSomebodyHasThem(t *testing.T) {
	t.Parallel()
	compares := `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: web, uid: p}, spec: {nodeName: node-7, tolerations: [{key: sla, operator: Gt, value: "3"}]}}`
	require.False(t, read(t, clientsOf(t, allKinds, world...), Wants{}).Rules.ComparisonOperators)
	require.True(t, read(t, clientsOf(t, allKinds, append(world, compares)...), Wants{}).Rules.ComparisonOperators)
	settled := settings.DefaultEviction()
	require.False(t, read(t, clientsOf(t, allKinds, append(world, compares, lease(settled, noon))...), Wants{}).Rules.ComparisonOperators, "Tollgate says so")
	settled.ComparisonOperators, settled.MaxHold, settled.Mode = true, time.Hour, configv1alpha1.EvictionWindow
	rules := read(t, clientsOf(t, allKinds, append(world, lease(settled, noon))...), Wants{}).Rules
	require.True(t, rules.ComparisonOperators)
	require.True(t, rules.Window)
	require.Equal(t, time.Hour, rules.MaxHold)
}

// forbid denies list and get of a kind.
func forbid(t *testing.T, clients *cli.Clients, resource string, err error) {
	t.Helper()
	no := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(t, ok)
	custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	for _, verb := range []string{"list", "get"} {
		typed.PrependReactor(verb, resource, no)
		custom.PrependReactor(verb, resource, no)
	}
}

func TestSaysWhatAnAnswerLacks(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct{ group, lacks string }{
		"namespaces":           {"", "where a policy asks for labels of namespaces, its pods count as not held and not protected"},
		"poddisruptionbudgets": {"policy", "it is not known which pods a PodDisruptionBudget guards"},
		"resourceclaims":       {"resource.k8s.io", "it is not known which pods use which devices"},
		"resourceslices":       {"resource.k8s.io", "devices that no claim has, and the taints that drivers publish, are not known"},
		"deviceclasses":        {"resource.k8s.io", "which devices a ResourceSlicePatch with a class selects is not known"},
		"devicetaintrules":     {"resource.k8s.io", "the taints of DeviceTaintRules and ResourceSlicePatches are not known"},
		"evictionpolicies":     {"tollgate.dev", "EvictionPolicies are as if there were none"},
		"resourceslicepatches": {"tollgate.dev", "ResourceSlicePatches are as if there were none"},
		"taintpolicies":        {"tollgate.dev", "TaintPolicies are as if there were none"},
		"tolerationpolicies":   {"tollgate.dev", "TolerationPolicies are as if there were none"},
		"placementpolicies":    {"tollgate.dev", "PlacementPolicies are as if there were none"},
		"gatepolicies":         {"tollgate.dev", "GatePolicies are as if there were none"},
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			clients := clientsOf(t, allKinds, append(world, lease(settings.DefaultEviction(), noon))...)
			forbid(t, clients, resource, apierrors.NewForbidden(schema.GroupResource{Group: c.group, Resource: resource}, "", errors.New("no")))
			found := read(t, clients, Wants{Policies: true, Selection: true})
			group := c.group
			if group == "" {
				group = `""`
			}
			require.Equal(t, []string{"you may not list " + resource + ": " + c.lacks + " (ask for a ClusterRole with the verb list on " + resource + " of API group " + group + ")"}, found.Missing())
			f := drained(t, found)
			require.Equal(t, resource == "poddisruptionbudgets", f.BudgetsUnknown)
			require.Equal(t, resource != "resourceclaims", found.DevicesKnown())
		})
	}
}

func TestWithoutTheLeaseTheDefaultsCount(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, allKinds, world...)
	forbid(t, clients, "leases", apierrors.NewForbidden(leaseResource, "tollgate", errors.New("no")))
	c := read(t, clients, Wants{})
	require.Equal(t, []string{"you may not read Lease tollgate-system/tollgate, so it is not known whether Tollgate runs: the answer is for one with the default configuration (ask for a ClusterRole with the verb get on leases of API group coordination.k8s.io)"}, c.Missing())
	f := drained(t, c)
	require.Equal(t, map[string]int{"keep-data": 1}, f.Protected)
}

func TestThereIsNoAnswerWithoutPodsAndNodes(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"pods", "nodes"} {
		clients := clientsOf(t, allKinds, world...)
		forbid(t, clients, resource, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(`user "eve" may not`)))
		_, err := Read(t.Context(), clients, noon, Wants{})
		require.ErrorContains(t, err, `list `+resource+`: `)
		require.ErrorContains(t, err, "eve")
		require.ErrorContains(t, err, `(ask for a ClusterRole with the verb list on `+resource+` of API group "")`)
	}
	for _, resource := range []string{"leases", "namespaces", "devicetaintrules", "evictionpolicies"} {
		clients := clientsOf(t, allKinds, world...)
		forbid(t, clients, resource, errors.New("connection refused"))
		_, err := Read(t.Context(), clients, noon, Wants{})
		require.ErrorContains(t, err, "connection refused", resource)
	}
}

func BenchmarkRead10000Pods(b *testing.B) {
	clients := clientsOf(b, allKinds, append(world, lease(settings.DefaultEviction(), noon))...)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(b, ok)
	pods := &corev1.PodList{}
	for i := range 10_000 {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-" + strconv.Itoa(i%50), Name: "pod-" + strconv.Itoa(i), UID: types.UID("uid-" + strconv.Itoa(i)),
			Labels: map[string]string{"app": "app-" + strconv.Itoa(i%200), "pod-template-hash": strconv.Itoa(i % 200)},
		}}
		pod.Spec.NodeName = "node-" + strconv.Itoa(i%200)
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))}}
		pods.Items = append(pods.Items, pod)
	}
	typed.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pods, nil })
	b.ReportAllocs()
	for b.Loop() {
		c, err := Read(b.Context(), clients, noon, Wants{})
		require.NoError(b, err)
		require.Equal(b, 10_000, c.Tracker.Live())
	}
}
