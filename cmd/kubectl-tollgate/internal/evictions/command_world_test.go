package evictions

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// commandNoon is when synctest begins to count.
var commandNoon = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// commandStamped returns an offset from commandNoon as the API has times, in quotes.
func commandStamped(offset time.Duration) string {
	return `"` + commandNoon.Add(offset).Format(time.RFC3339) + `"`
}

// served is what an API server serves, by group and version.
type served map[string][]string

var (
	kubernetesKinds = served{"resource.k8s.io/v1": {"resourceslices", "deviceclasses", "resourceclaims", "devicetaintrules"}}
	allKinds        = served{
		"resource.k8s.io/v1":    kubernetesKinds["resource.k8s.io/v1"],
		"tollgate.dev/v1alpha1": {"evictionpolicies", "resourceslicepatches", "evictionapprovals"},
	}
	customKinds = map[string]schema.GroupVersionResource{
		"DeviceTaintRule":    {Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"},
		"EvictionPolicy":     {Group: "tollgate.dev", Version: "v1alpha1", Resource: "evictionpolicies"},
		"ResourceSlicePatch": {Group: "tollgate.dev", Version: "v1alpha1", Resource: "resourceslicepatches"},
	}
)

// clientsOf are those of a cluster that serves some kinds and has some objects.
func clientsOf(tb testing.TB, serves served, objects ...string) *cli.Clients {
	tb.Helper()
	typed := fake.NewClientset()
	discovery, ok := typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(tb, ok)
	for group, names := range serves {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		discovery.Resources = append(discovery.Resources, list)
	}
	lists := map[schema.GroupVersionResource]string{}
	for kind, resource := range customKinds {
		lists[resource] = kind + "List"
	}
	clients := &cli.Clients{Kubernetes: typed, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)}
	for _, text := range objects {
		create(tb, clients, text)
	}
	return clients
}

// create puts an object there.
func create(tb testing.TB, clients *cli.Clients, text string) {
	tb.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(tb, yaml.Unmarshal([]byte(text), &object.Object), text)
	if resource, found := customKinds[object.GetKind()]; found {
		_, err := clients.Dynamic.Resource(resource).Create(context.Background(), object, metav1.CreateOptions{}) //nolint:usetesting // Benchmarks have none yet.
		require.NoError(tb, err)
		return
	}
	document, err := object.MarshalJSON()
	require.NoError(tb, err)
	known, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	require.NoError(tb, err, text)
	require.NoError(tb, clients.Kubernetes.(*fake.Clientset).Tracker().Add(known))
}

// forbid lets clients do nothing with a resource.
func forbid(t *testing.T, clients *cli.Clients, resource string, err error) {
	t.Helper()
	for _, verb := range []string{"list", "watch"} {
		clients.Kubernetes.(*fake.Clientset).PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	clients.Kubernetes.(*fake.Clientset).PrependWatchReactor(resource, refusingWatch(err))
}

// lease returns the Lease of a Tollgate that has just renewed it.
func lease(tb testing.TB) string {
	tb.Helper()
	return leaseOf(tb, settings.DefaultEviction())
}

// leaseOf is lease for a Tollgate on some terms.
func leaseOf(tb testing.TB, said settings.Eviction) string {
	tb.Helper()
	labels, err := json.Marshal(said.Labels())
	require.NoError(tb, err)
	return "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: tollgate, namespace: tollgate-system, labels: " + string(labels) +
		"}\nspec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: \"" + commandNoon.Format("2006-01-02T15:04:05.000000Z07:00") + `"}`
}

// commandWorld is a node with a pod that is due, one that waits for two minutes, one that is
// paused and one that is protected.
func commandWorld(tb testing.TB) []string {
	tb.Helper()
	return []string{
		lease(tb),
		"{apiVersion: v1, kind: Node, metadata: {name: node-7, uid: node-7}, spec: {taints: [{key: example.com/broken, effect: NoExecute, timeAdded: " + commandStamped(-time.Minute) + "}]}}",
		"{apiVersion: v1, kind: Node, metadata: {name: node-8, uid: node-8}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: web}}",
		commandPod("web", "due", "app: due"),
		commandPod("web", "waiting", "app: waiting", "{key: example.com/broken, operator: Exists, effect: NoExecute, tolerationSeconds: 180}"),
		commandPod("web", "paused", "app: paused"),
		commandPod("db", "protected", "app: protected"),
		"{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: stop, uid: stop}, spec: {taints: [{key: example.com/broken}], podSelector: {matchLabels: {app: paused}}, paused: true}}",
		"{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: keep, uid: keep}, spec: {taints: [{key: example.com/broken}], podSelector: {matchLabels: {app: protected}}, protect: {podSelector: {matchLabels: {app: protected}}}}}",
	}
}

func commandPod(namespace, name, labels string, tolerations ...string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {namespace: " + namespace + ", name: " + name + ", uid: " + name + ", labels: {" + labels +
		"}, creationTimestamp: " + commandStamped(-time.Hour) + "}, spec: {nodeName: node-7, tolerations: [" + strings.Join(tolerations, ", ") + "]}}"
}

// paper is a writer that can be read while it is written to.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// take returns what was written since it was taken before.
func (p *paper) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.text.String()
	p.text.Reset()
	return text
}
