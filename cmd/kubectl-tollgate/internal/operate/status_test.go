package operate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var tollgateKinds = map[string]string{
	"EvictionPolicy": "evictionpolicies", "TolerationPolicy": "tolerationpolicies", "TaintPolicy": "taintpolicies",
	"PlacementPolicy": "placementpolicies", "GatePolicy": "gatepolicies", "ResourceSlicePatch": "resourceslicepatches",
}

// statusClients are those of a cluster that has some objects and serves Tollgate's kinds.
func statusClients(t *testing.T, objects ...string) *cli.Clients {
	t.Helper()
	typed := fake.NewClientset()
	discovery, ok := typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(t, ok)
	served := &metav1.APIResourceList{GroupVersion: "tollgate.dev/v1alpha1"}
	lists := map[schema.GroupVersionResource]string{}
	resourceOf := func(plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: plural}
	}
	for kind, plural := range tollgateKinds {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: plural})
		lists[resourceOf(plural)] = kind + "List"
	}
	discovery.Resources = []*metav1.APIResourceList{served, {GroupVersion: "resource.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "resourceslices"}, {Name: "resourceclaims"}}}}
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, text := range objects {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object), text)
		if plural, found := tollgateKinds[object.GetKind()]; found {
			require.NoError(t, custom.Tracker().Create(resourceOf(plural), object, ""))
			continue
		}
		document, err := object.MarshalJSON()
		require.NoError(t, err)
		known, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		require.NoError(t, err)
		require.NoError(t, typed.Tracker().Add(known))
	}
	return &cli.Clients{Kubernetes: typed, Dynamic: custom}
}

// statusWorld is a cluster with a tripped breaker, a paused policy, one that is not ready, and one that was not evaluated yet.
func statusWorld(t *testing.T) []string {
	t.Helper()
	labels, err := json.Marshal(settings.DefaultEviction().Labels())
	require.NoError(t, err)
	const (
		since = `timeAdded: "2026-03-01T11:50:00Z"`
		ready = `status: {observedGeneration: 1, conditions: [{type: Ready, status: "True", reason: Accepted}]`
	)
	objects := []string{
		`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: tollgate, namespace: tollgate-system, labels: ` + string(labels) +
			`}, spec: {holderIdentity: tollgate-5d8f-x7, leaseDurationSeconds: 15, renewTime: "2026-03-01T11:59:58.000000Z"}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: default, uid: default, generation: 1}, spec: {taints: [{key: "*"}], breaker: {maxPods: 1, window: 10m}}, ` +
			ready + `, breaker: {tripped: "2026-03-01T11:55:00.000000Z"}}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: gpus, uid: gpus, generation: 1}, spec: {priority: 9, taints: [{key: example.com/hot}], paused: true}, ` + ready + `}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: db, uid: db, generation: 1}, spec: {}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: InvalidExpression}]}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: new, uid: new, generation: 2}, spec: {}, ` + ready + `}}`,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: tollgate}, webhooks: [{name: a.tollgate.dev}, {name: b.tollgate.dev}]}`,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: tollgate}, webhooks: [{name: c.tollgate.dev}]}`,
		`{apiVersion: v1, kind: Node, metadata: {name: n1, uid: n1}, spec: {taints: [{key: example.com/broken, effect: NoExecute, ` + since + `}]}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: n2, uid: n2}, spec: {taints: [{key: example.com/hot, effect: NoExecute, ` + since + `}]}}`,
		`{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: gpus, uid: gpus}, spec: {driver: gpu.example.com, nodeName: n3, pool: {name: n3, resourceSliceCount: 1}, devices: [{name: gpu-0, taints: [{key: sick, effect: NoExecute, ` +
			since + `}]}, {name: gpu-1, taints: [{key: sick, effect: NoSchedule, ` + since + `}]}]}}`,
	}
	for i := range 6 {
		node, tolerations := "n1", ""
		switch i {
		case 4:
			node = "n2"
		case 5:
			tolerations = "{key: example.com/broken, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}"
		}
		objects = append(objects, "{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: web-"+strconv.Itoa(i)+", uid: web-"+strconv.Itoa(i)+
			"}, spec: {nodeName: "+node+", tolerations: ["+tolerations+"]}}")
	}
	return objects
}

// shows returns what the command writes about a cluster.
func shows(t *testing.T, clients *cli.Clients, format string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := &statusCommand{command{clock: clocktesting.NewFakePassiveClock(noon), out: &out, notes: &out}}
	c.Format = format
	err := c.run(t.Context(), clients)
	return out.String(), err
}

// The manual shows the text.
func TestStatusWritesWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	for format, file := range map[string]string{"text": "status.txt", "json": "status.json"} {
		got, err := shows(t, statusClients(t, statusWorld(t)...), format)
		require.NoError(t, err)
		path := filepath.Join("testdata", file)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got)
		for line := range strings.Lines(got) {
			require.True(t, format == "json" || len(line) <= cli.Width+1, line)
		}
	}
}

func TestWithoutTollgate(t *testing.T) {
	t.Parallel()
	got, err := shows(t, statusClients(t), "text")
	require.NoError(t, err)
	require.Contains(t, got, "Tollgate   does not run here\n")
	require.Contains(t, got, "Webhooks   no ValidatingWebhookConfiguration, no MutatingWebhookConfiguration\n")
	require.Contains(t, got, "Policies   <none>\nTainted    <none>\nEvictions  no pod has to leave\n")
	require.Contains(t, got, "Needs attention:\n  Tollgate does not run here (there is no Lease tollgate-system/tollgate)")
	require.NotContains(t, got, "Not known:")
}

func TestALeaderThatIsGoneNeedsAttention(t *testing.T) {
	t.Parallel()
	objects := statusWorld(t)
	objects[0] = strings.Replace(objects[0], "2026-03-01T11:59:58", "2026-03-01T09:00:00", 1)
	got, err := shows(t, statusClients(t, objects...), "text")
	require.NoError(t, err)
	require.Contains(t, got, "Tollgate   mode Replace, no leader, the last was tollgate-5d8f-x7 (Lease renewed 3h ago)\n")
	require.Contains(t, got, "Needs attention:\n  no Tollgate leads at the moment (Lease tollgate-system/tollgate is not renewed)")
	got, err = shows(t, statusClients(t, objects...), "json")
	require.NoError(t, err)
	require.Contains(t, got, `"leads": false`)
}

func TestDeletedWebhooksNeedAttention(t *testing.T) {
	t.Parallel()
	var objects []string
	for _, object := range statusWorld(t) {
		if !strings.Contains(object, "kind: ValidatingWebhookConfiguration") {
			objects = append(objects, object)
		}
	}
	got, err := shows(t, statusClients(t, objects...), "text")
	require.NoError(t, err)
	require.Contains(t, got, "Webhooks   no ValidatingWebhookConfiguration, 1 mutating\n")
	require.Contains(t, got, "Needs attention:\n  the ValidatingWebhookConfiguration tollgate does not exist: requests are not judged until it is\n    restored (docs/registration.md)\n")
}

func TestAPauseOfAllEvictionsHasItsOwnRemedy(t *testing.T) {
	t.Parallel()
	stop := `{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: stop-evictions, uid: s, generation: 1}, spec: {taints: [{key: "*"}], paused: true}}`
	got, err := shows(t, statusClients(t, append(statusWorld(t), stop)...), "text")
	require.NoError(t, err)
	require.Contains(t, got, "EvictionPolicy/stop-evictions is paused: kubectl tollgate resume all\n")
}

func TestShowsWhatTheUserMayRead(t *testing.T) {
	t.Parallel()
	clients := statusClients(t, statusWorld(t)...)
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
	}
	clients.Kubernetes.(*fake.Clientset).PrependReactor("get", "validatingwebhookconfigurations", refuse)
	clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "tolerationpolicies", refuse)
	got, err := shows(t, clients, "text")
	require.NoError(t, err)
	require.Contains(t, got, "Webhooks   1 mutating\n")
	require.Contains(t, got, "Policies   1 TaintPolicy, 2 EvictionPolicies\n")
	_, missing, _ := strings.Cut(got, "Not known:")
	require.Contains(t, missing, "you may not get validatingwebhookconfigurations")
	require.Contains(t, missing, "you may not list tolerationpolicies: those are not shown")
}

func TestAnErrorOfTheAPIServerIsAnError(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"validatingwebhookconfigurations": "read ValidatingWebhookConfiguration tollgate: Internal error occurred",
		"mutatingwebhookconfigurations":   "read MutatingWebhookConfiguration tollgate: Internal error occurred",
		"gatepolicies":                    "list gatepolicies.tollgate.dev: Internal error occurred",
	} {
		clients := statusClients(t, statusWorld(t)...)
		fail := func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(os.ErrDeadlineExceeded)
		}
		clients.Kubernetes.(*fake.Clientset).PrependReactor("get", resource, fail)
		clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", resource, fail)
		_, err := shows(t, clients, "text")
		require.ErrorContains(t, err, want)
		require.Equal(t, cli.ExitError, cli.ExitCode(err))
	}
}
