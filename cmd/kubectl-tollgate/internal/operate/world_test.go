package operate

import (
	"encoding/json"
	"strconv"
	"strings"
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

var (
	approvalKind = approvalResource.WithVersion("v1alpha1")
	policyKind   = schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "evictionpolicies"}
	patchKind    = schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "resourceslicepatches"}
	ruleKind     = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}
)

// clientsOf are those of a cluster that has some objects, and serves Tollgate's kinds, or
// not.
func clientsOf(tb testing.TB, tollgate bool, objects ...string) *cli.Clients {
	tb.Helper()
	typed := fake.NewClientset()
	discovery, ok := typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(tb, ok)
	discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "resource.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "resourceslices"}, {Name: "resourceclaims"}, {Name: "devicetaintrules"}}}}
	if tollgate {
		discovery.Resources = append(discovery.Resources, &metav1.APIResourceList{GroupVersion: "tollgate.dev/v1alpha1", APIResources: []metav1.APIResource{
			{Name: "evictionpolicies"}, {Name: "evictionapprovals"}, {Name: "resourceslicepatches"},
		}})
	}
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		approvalKind: "EvictionApprovalList", policyKind: "EvictionPolicyList", patchKind: "ResourceSlicePatchList", ruleKind: "DeviceTaintRuleList",
	})
	for _, text := range objects {
		object := &unstructured.Unstructured{}
		require.NoError(tb, yaml.Unmarshal([]byte(text), &object.Object), text)
		kind, found := map[string]schema.GroupVersionResource{"EvictionPolicy": policyKind, "DeviceTaintRule": ruleKind}[object.GetKind()]
		if found {
			require.NoError(tb, custom.Tracker().Create(kind, object, ""))
			continue
		}
		document, err := object.MarshalJSON()
		require.NoError(tb, err)
		known, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		require.NoError(tb, err)
		require.NoError(tb, typed.Tracker().Add(known))
	}
	return &cli.Clients{Kubernetes: typed, Dynamic: custom}
}

// world is a cluster whose breaker holds pods because of two taints of one node and one
// of another, and because of a rule, a patch, and a driver.
func world(tb testing.TB) []string {
	tb.Helper()
	labels, err := json.Marshal(settings.DefaultEviction().Labels())
	require.NoError(tb, err)
	const since = `timeAdded: "2026-03-01T11:50:00Z"`
	objects := []string{
		`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: tollgate, namespace: tollgate-system, labels: ` + string(labels) +
			`}, spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: "2026-03-01T12:00:00.000000Z"}}`,
		`{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: default, uid: default}, spec: {taints: [{key: "*"}, {target: Device, key: "*"}], breaker: {maxPods: 1, window: 10m}}, status: {breaker: {tripped: "2026-03-01T11:55:00.000000Z"}}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: n1, uid: n1}, spec: {taints: [{key: example.com/broken, effect: NoExecute, ` + since + `}, {key: example.com/Hot_Spot, effect: NoExecute, ` + since + `}]}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: n2, uid: n2}, spec: {taints: [{key: example.com/broken, effect: NoExecute, ` + since + `}]}}`,
		`{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: hot, uid: hot}, spec: {deviceSelector: {device: gpu-0}, taint: {key: example.com/hot, effect: NoExecute, ` + since + `}}}`,
		`{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: racks-1, uid: racks-1, labels: {tollgate.dev/resource-slice-patch: racks}, ownerReferences: [{apiVersion: tollgate.dev/v1alpha1, kind: ResourceSlicePatch, name: racks, uid: racks, controller: true}]}, spec: {deviceSelector: {device: gpu-1}, taint: {key: example.com/moved, effect: NoExecute, ` + since + `}}}`,
		`{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: gpus, uid: gpus}, spec: {driver: gpu.example.com, nodeName: n3, pool: {name: n3, resourceSliceCount: 1}, devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2, taints: [{key: gpu.example.com/sick, effect: NoExecute, ` + since + `}]}]}}`,
	}
	for i := range 7 {
		objects = append(objects, pod("web-"+strconv.Itoa(i), "n1", "", "example.com/Hot_Spot"))
	}
	objects = append(objects, pod("hot", "n1", "", "example.com/broken"), pod("other", "n2", ""))
	for i := range 3 {
		name := "gpu-" + strconv.Itoa(i)
		objects = append(objects, pod(name, "n3", name), `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: `+name+`, namespace: web, uid: claim}, status: {allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: n3, device: `+
			name+`}]}}, reservedFor: [{resource: pods, name: `+name+`, uid: `+name+`}]}}`)
	}
	return objects
}

// pod returns a pod that has a claim, if that is named, and tolerates some keys.
func pod(name, node, claim string, tolerated ...string) string {
	var claims, tolerations []string
	if claim != "" {
		claims = append(claims, "{name: c, resourceClaimName: "+claim+"}")
	}
	for _, key := range tolerated {
		tolerations = append(tolerations, "{key: "+key+", operator: Exists}")
	}
	return "{apiVersion: v1, kind: Pod, metadata: {namespace: web, name: " + name + ", uid: " + name + "}, spec: {nodeName: " + node +
		", resourceClaims: [" + strings.Join(claims, ", ") + "], tolerations: [" + strings.Join(tolerations, ", ") + "]}}"
}
