package state

import (
	"context"
	"encoding/json"
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
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// served has the served resources, by group and version.
type served map[string][]string

var (
	plainKinds = served{"resource.k8s.io/v1": {"resourceslices", "deviceclasses", "resourceclaims", "devicetaintrules"}}
	allKinds   = served{
		"resource.k8s.io/v1": plainKinds["resource.k8s.io/v1"],
		"tollgate.dev/v1alpha1": {
			"evictionpolicies", "resourceslicepatches", "taintpolicies", "tolerationpolicies", "placementpolicies", "gatepolicies",
		},
	}
)

// customKinds are the kinds of the dynamic client.
var customKinds = map[string]schema.GroupVersionResource{
	"DeviceTaintRule":    {Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"},
	"EvictionPolicy":     {Group: "tollgate.dev", Version: "v1alpha1", Resource: "evictionpolicies"},
	"ResourceSlicePatch": {Group: "tollgate.dev", Version: "v1alpha1", Resource: "resourceslicepatches"},
	"TaintPolicy":        {Group: "tollgate.dev", Version: "v1alpha1", Resource: "taintpolicies"},
	"TolerationPolicy":   {Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"},
	"PlacementPolicy":    {Group: "tollgate.dev", Version: "v1alpha1", Resource: "placementpolicies"},
	"GatePolicy":         {Group: "tollgate.dev", Version: "v1alpha1", Resource: "gatepolicies"},
}

// clientsOf returns clients of a cluster with served kinds and objects.
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
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, text := range objects {
		object := &unstructured.Unstructured{}
		require.NoError(tb, yaml.Unmarshal([]byte(text), &object.Object))
		if resource, found := customKinds[object.GetKind()]; found {
			_, err := custom.Resource(resource).Create(context.Background(), object, metav1.CreateOptions{}) //nolint:usetesting // Benchmarks have none yet.
			require.NoError(tb, err)
			continue
		}
		data, err := object.MarshalJSON()
		require.NoError(tb, err)
		ok, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		require.NoError(tb, err)
		require.NoError(tb, typed.Tracker().Add(ok))
	}
	return &cli.Clients{Kubernetes: typed, Dynamic: custom}
}

// lease returns the Lease of a Tollgate with eviction settings.
func lease(settled settings.Eviction, renewed time.Time) string {
	labels, err := json.Marshal(settled.Labels())
	if err != nil {
		panic(err)
	}
	return `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: tollgate
  namespace: tollgate-system
  labels: ` + string(labels) + `
spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: "` + renewed.Format("2006-01-02T15:04:05.000000Z07:00") + `"}
`
}
