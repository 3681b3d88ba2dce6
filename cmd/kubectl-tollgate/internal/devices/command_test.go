package devices

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// commandCluster is what is served, by group and version.
type commandCluster map[string][]string

// allServed is what Kubernetes 1.37 with Tollgate's CRDs serves of devices.
var allServed = commandCluster{
	"resource.k8s.io/v1":    {"resourceslices", "deviceclasses", "resourceclaims", "devicetaintrules"},
	"tollgate.dev/v1alpha1": {"resourceslicepatches"},
}

const (
	gpuSlice = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus, managedFields: [{manager: driver}]}
spec:
  driver: gpu.example.com
  nodeName: node-7
  pool: {name: node-7, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: A100}}}]
`
	gpuClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpus}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
`
	gpuClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: ml}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node-7, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: train, uid: u}]
`
	gpuPatch = `
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: racks, uid: racks-uid}
spec: {devices: {filter: {deviceClassName: gpus}, attributes: {example.com/rack: {string: "7"}}}}
`
	gpuRule = `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: hot}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: example.com/hot, effect: NoSchedule}}
`
)

// clientsOf reads a cluster that serves some kinds and has some objects.
func clientsOf(t *testing.T, serves commandCluster, version string, patches, rules []string) *cli.Clients {
	t.Helper()
	typed := fake.NewClientset(decoded[resourcev1.ResourceSlice](t, gpuSlice), decoded[resourcev1.DeviceClass](t, gpuClass), decoded[resourcev1.ResourceClaim](t, gpuClaim))
	discovery, ok := typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(t, ok)
	for group, names := range serves {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		discovery.Resources = append(discovery.Resources, list)
	}
	patchKind, ruleKind := state.PatchResource.WithVersion("v1alpha1"), informer.RuleResource.WithVersion(version)
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		patchKind: "ResourceSlicePatchList", ruleKind: "DeviceTaintRuleList",
	})
	for kind, texts := range map[schema.GroupVersionResource][]string{patchKind: patches, ruleKind: rules} {
		for _, text := range texts {
			object := &unstructured.Unstructured{Object: *decoded[map[string]any](t, text)}
			_, err := custom.Resource(kind).Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	return &cli.Clients{Kubernetes: typed, Dynamic: custom}
}

func decoded[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	require.NoError(t, yaml.Unmarshal([]byte(text), object))
	return object
}

// shows runs the command on a cluster and returns what it writes.
func shows(t *testing.T, r *cli.Clients, filter Filter, output string) (out, notes string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.NoError(t, show(t.Context(), r, filter, output, &stdout, &stderr))
	return stdout.String(), stderr.String()
}

func TestShowsAllThatIsServed(t *testing.T) {
	t.Parallel()
	v1alpha3 := commandCluster{"resource.k8s.io/v1": {"resourceslices", "resourceclaims"}, "resource.k8s.io/v1alpha3": {"devicetaintrules"}}
	for sentence, c := range map[string]struct {
		serves  commandCluster
		version string
		row     string
	}{
		"slices, patches, classes, rules and claims": {allServed, "v1", "gpu.example.com/node-7/gpu-0  node-7  hot:NoSchedule  racks    ml/one  train\n"},
		"VS-03 rules of Kubernetes 1.34":             {v1alpha3, "v1alpha3", "gpu.example.com/node-7/gpu-0  node-7  hot:NoSchedule  <none>   ml/one  train\n"},
		"slices and claims alone":                    {commandCluster{"resource.k8s.io/v1": {"resourceslices", "resourceclaims"}}, "v1", "gpu.example.com/node-7/gpu-0  node-7  <none>  <none>   ml/one  train\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			out, notes := shows(t, clientsOf(t, c.serves, c.version, []string{gpuPatch}, []string{gpuRule}), Filter{}, "table")
			require.Contains(t, out, c.row)
			require.Empty(t, notes)
		})
	}
}

func TestWritesEachFormat(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", []string{gpuPatch}, nil)
	for output, want := range map[string]string{
		"table": "DRIVER/POOL/DEVICE ",
		"wide":  "example.com/rack=7 (patch racks), model=A100",
		"yaml":  "\n  resourceSlice: gpus\n",
		"json":  `"resourceSlice": "gpus"`,
		"name":  "gpu.example.com/node-7/gpu-0\n",
	} {
		out, _ := shows(t, r, Filter{}, output)
		require.Contains(t, out, want)
		require.NotContains(t, out, "managedFields")
	}
}

// Rights are asked for what is shown and for no more.
func TestReadsNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		patches []string
		filter  Filter
		output  string
		reads   []string
	}{
		"slices and claims":                        {nil, Filter{}, "table", []string{"resourceslices", "resourceclaims"}},
		"names need no claims":                     {nil, Filter{}, "name", []string{"resourceslices"}},
		"a patch that names a class needs classes": {[]string{gpuPatch}, Filter{}, "name", []string{"deviceclasses", "resourceslices"}},
		"a class that is asked for is needed":      {nil, Filter{Class: "gpus"}, "name", []string{"deviceclasses", "resourceslices"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := clientsOf(t, allServed, "v1", c.patches, nil)
			shows(t, r, c.filter, c.output)
			require.Equal(t, c.reads, listed(r))
		})
	}
}

func listed(r *cli.Clients) []string {
	var names []string
	for _, action := range r.Kubernetes.(*fake.Clientset).Actions() {
		if action.GetVerb() == "list" {
			names = append(names, action.GetResource().Resource)
		}
	}
	return names
}

func TestAsksForTheSlicesOfOneDriver(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", nil, nil)
	shows(t, r, Filter{Driver: "gpu.example.com"}, "name")
	for _, action := range r.Kubernetes.(*fake.Clientset).Actions() {
		if list, ok := action.(clienttesting.ListAction); ok {
			require.Equal(t, "spec.driver=gpu.example.com", list.GetListRestrictions().Fields.String())
		}
	}
}

func TestReadsListsInChunks(t *testing.T) {
	t.Parallel()
	r := clientsOf(t, allServed, "v1", nil, nil)
	var limits []int64
	var from []string
	r.Kubernetes.(*fake.Clientset).PrependReactor("list", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		limits, from = append(limits, options.Limit), append(from, options.Continue)
		page := &resourcev1.ResourceSliceList{Items: []resourcev1.ResourceSlice{*decoded[resourcev1.ResourceSlice](t, gpuSlice)}}
		page.Items[0].Name += strconv.Itoa(len(from))
		page.Items[0].Spec.Pool.Name += strconv.Itoa(len(from))
		if len(from) < 3 {
			page.Continue = "after " + strconv.Itoa(len(from))
		}
		return true, page, nil
	})
	out, _ := shows(t, r, Filter{}, "name")
	require.Equal(t, "gpu.example.com/node-71/gpu-0\ngpu.example.com/node-72/gpu-0\ngpu.example.com/node-73/gpu-0\n", out)
	require.Equal(t, []int64{500, 500, 500}, limits)
	require.Equal(t, []string{"", "after 1", "after 2"}, from)
}

func TestSaysWhatToDoAboutAnError(t *testing.T) {
	t.Parallel()
	slices := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
	for sentence, c := range map[string]struct {
		err   error
		names []string
	}{
		"no rights": {
			apierrors.NewForbidden(slices, "", errors.New("User \"eve\" cannot list resource")),
			[]string{"you (eve) may not list resourceslices.resource.k8s.io ", "ask for a ClusterRole with the verb list on resourceslices of API group resource.k8s.io"},
		},
		"no login":   {apierrors.NewUnauthorized("token expired"), []string{"log in again"}},
		"too slowly": {apierrors.NewResourceExpired("too old"), []string{"try again"}},
		"else":       {errors.New("connection refused"), []string{"list resourceslices.resource.k8s.io: connection refused"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := clientsOf(t, allServed, "v1", nil, nil)
			r.Kubernetes.(*fake.Clientset).PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, c.err
			})
			err := show(t.Context(), r, Filter{}, "table", io.Discard, io.Discard)
			for _, name := range c.names {
				require.ErrorContains(t, err, name)
			}
		})
	}
	err := show(t.Context(), clientsOf(t, commandCluster{}, "v1", nil, nil), Filter{}, "table", io.Discard, io.Discard)
	require.EqualError(t, err, "list resourceslices.resource.k8s.io in version v1: the API server does not serve it (devices need Kubernetes 1.34 or later)")
}

func TestFindsNothingWithoutAnError(t *testing.T) {
	t.Parallel()
	out, notes := shows(t, clientsOf(t, allServed, "v1", nil, nil), Filter{Driver: "nic.example.com"}, "table")
	require.Empty(t, out)
	require.Equal(t, "no devices found: there is no ResourceSlice of driver nic.example.com\n", notes)
}

// runDevices runs the command line.
func runDevices(t *testing.T, arguments ...string) error {
	t.Helper()
	cmd := NewCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(arguments)
	return cmd.ExecuteContext(t.Context())
}

func TestRefusesFlagsThatItCannotObey(t *testing.T) {
	t.Parallel()
	require.EqualError(t, runDevices(t, "-o", "xml"), `--output is "xml", want one of table, wide, yaml, json, name`)
	require.ErrorIs(t, runDevices(t, "--kubeconfig", filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	require.ErrorContains(t, runDevices(t, "--kubeconfig", empty, "--context", "prod"), `context "prod" does not exist`)
	require.ErrorContains(t, runDevices(t, "gpu-0"), "unknown command")
}

// Through real clients and a kubeconfig, to something that answers as an API server does.
func TestReadsTheClusterOfItsKubeconfig(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/apis/resource.k8s.io/v1":                         `{"kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1", "resources": [{"name": "resourceslices", "kind": "ResourceSlice", "verbs": ["list"]}, {"name": "devicetaintrules", "kind": "DeviceTaintRule", "verbs": ["list"]}]}`,
		"/apis/tollgate.dev/v1alpha1":                      `{"kind": "APIResourceList", "groupVersion": "tollgate.dev/v1alpha1", "resources": [{"name": "resourceslicepatches", "kind": "ResourceSlicePatch", "verbs": ["list"]}]}`,
		"/apis/resource.k8s.io/v1/resourceslices":          listOf(t, "resource.k8s.io/v1", "ResourceSliceList", gpuSlice),
		"/apis/resource.k8s.io/v1/deviceclasses":           listOf(t, "resource.k8s.io/v1", "DeviceClassList", gpuClass),
		"/apis/resource.k8s.io/v1/devicetaintrules":        listOf(t, "resource.k8s.io/v1", "DeviceTaintRuleList", gpuRule),
		"/apis/resource.k8s.io/v1/resourceclaims":          listOf(t, "resource.k8s.io/v1", "ResourceClaimList", gpuClaim),
		"/apis/tollgate.dev/v1alpha1/resourceslicepatches": listOf(t, "tollgate.dev/v1alpha1", "ResourceSlicePatchList", gpuPatch),
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found || r.Header.Get("Authorization") != "Bearer mine" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
current-context: elsewhere
clusters: [{name: here, cluster: {server: "`+server.URL+`", insecure-skip-tls-verify: true}}, {name: elsewhere, cluster: {server: "http://192.0.2.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: me}}, {name: elsewhere, context: {cluster: elsewhere, user: me}}]
users: [{name: me, user: {token: mine}}]
`), 0o600))
	cmd := NewCommand()
	var out, notes bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs([]string{"--kubeconfig", kubeconfig, "--context", "here", "--driver", "gpu.example.com"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Equal(t, "DRIVER/POOL/DEVICE            NODE    TAINTS          PATCHES  CLAIM   POD\n"+
		"gpu.example.com/node-7/gpu-0  node-7  hot:NoSchedule  racks    ml/one  train\n", out.String())
	require.Empty(t, notes.String())
}

func listOf(t *testing.T, version, kind, item string) string {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(item))
	require.NoError(t, err)
	return `{"apiVersion": "` + version + `", "kind": "` + kind + `", "metadata": {}, "items": [` + string(object) + `]}`
}

func TestEndsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, show(ctx, clientsOf(t, allServed, "v1", nil, nil), Filter{}, "table", io.Discard, io.Discard), context.Canceled)
}
