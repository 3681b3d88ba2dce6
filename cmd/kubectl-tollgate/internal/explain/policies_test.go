package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

func TestPlacementGoesByWhatAPodRequests(t *testing.T) {
	t.Parallel()
	policy := func(name, match string) string {
		return "apiVersion: tollgate.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: " + name + "}\nspec: {match: {" + match + "}, pod: {nodeSelector: {" + name + ": a}}}\n"
	}
	w := worldOf(t, gpuClass, claim("", ""),
		policy("class", "deviceClasses: [gpus]"), policy("other-class", "deviceClasses: [other]"), policy("resource", "resources: [example.com/fpga]"),
		policy("asks", `namespaces: [ml], matchConditions: [{name: who, expression: "request.userInfo.username == 'alice'"}]`),
		policy("object", `namespaces: [ml], matchConditions: [{name: app, expression: "object.metadata.labels.app == 'web'"}]`),
		`
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml, labels: {app: web}}
spec:
  nodeSelector: {class: a}
  schedulingGates: [{name: g}]
  containers: [{name: c, resources: {requests: {example.com/fpga: "1"}}}]
  resourceClaims: [{name: g, resourceClaimName: gpu}]
`)
	got, err := w.Pod(t.Context(), "ml", "p")
	require.NoError(t, err)
	given := map[string]bool{}
	for _, g := range got.Placement.Gifts {
		given[g.Value] = g.Has
	}
	require.Equal(t, map[string]bool{"class=a": true, "resource=a": false, "object=a": false}, given)
	require.Equal(t, map[string]string{"asks": "a matchCondition asks who made the pod, which nothing tells any more"}, got.Placement.Unknown)
}

func TestPlacementOfAClaimIsNotToldWhereItDependsOnWhoMadeIt(t *testing.T) {
	t.Parallel()
	w := worldOf(t, gpuClass, claim("", ""), `
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: given}
spec: {match: {namespaces: [ml]}, claim: {tolerations: [{key: a, operator: Exists}]}}
---
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: asks}
spec:
  match: {namespaces: [ml], matchConditions: [{name: who, expression: "request.userInfo.username == ''"}]}
  claim: {tolerations: [{key: b, operator: Exists}]}
`)
	got, err := w.Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Len(t, got.Placement.Gifts, 1)
	require.Equal(t, []string{"given"}, got.Placement.Gifts[0].Policies)
	require.Equal(t, map[string]string{"asks": "a matchCondition asks who made the claim, which nothing tells any more"}, got.Placement.Unknown)
}

func TestAClaimForAllDevicesOfANodeIsNotBlockedByOneOfThem(t *testing.T) {
	t.Parallel()
	all := strings.Replace(claim("", ""), "ExactCount, count: 1,", "All,", 1)
	got, err := worldOf(t, gpus, gpuClass, all).Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Contains(t, got.Answer, "nothing is known here that is against it")
}

func TestAdminAccessTakesDevicesFromNobody(t *testing.T) {
	t.Parallel()
	const admin, notAdmin = "adminAccess: true,", ""
	theirs := func(access string) string {
		return `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: theirs, namespace: other}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
status: {allocation: {devices: {results: [{request: r, ` + access + ` driver: gpu.example.com, pool: n-1, device: gpu-1}]}}}
`
	}
	for name, test := range map[string]struct {
		theirs, ours string
		free         int
	}{
		"both are ordinary":   {theirs(notAdmin), notAdmin, 0},
		"they have it beside": {theirs(admin), notAdmin, 1},
		"we want it beside":   {theirs(notAdmin), admin, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := worldOf(t, gpus, gpuClass, test.theirs, claim(test.ours, "")).Claim(t.Context(), "ml", "gpu")
			require.NoError(t, err)
			require.Equal(t, test.free, got.Requests[0].Candidates.Free)
			require.Equal(t, 1-test.free, got.Requests[0].Candidates.Taken)
		})
	}
}

func TestWhatIsUnreadIsNotToldAsAbsent(t *testing.T) {
	t.Parallel()
	w := worldOf(t, node("n-1", "1", ""), pod("p", usesGPU+", schedulingGates: [{name: g}]", ""), pod("q", usesGPU, ""))
	for _, name := range []string{"gatepolicies", "resourceclaims", "resourceslices"} {
		resource := schema.GroupResource{Resource: name}
		require.NoError(t, w.Lack(apierrors.NewForbidden(resource, "", nil), "list", resource, ""))
	}
	got, err := w.Pod(t.Context(), "ml", "p")
	require.NoError(t, err)
	require.Contains(t, got.Answer, "g (it is not known which GatePolicy guards it)")
	got, err = w.Pod(t.Context(), "ml", "q")
	require.NoError(t, err)
	require.NotContains(t, got.Answer, "does not exist")
	found, err := w.Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Contains(t, found.Answer, "It is not known")
	require.Contains(t, w.Device(t.Context(), device.ID{Driver: "d", Pool: "p", Name: "n"}).Answer, "It is not known whether")
}

func TestAClaimWithAlternativesIsBlockedWhenAllAre(t *testing.T) {
	t.Parallel()
	alternatives := func(second string) string {
		return `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml}
spec:
  devices:
    requests:
    - name: r
      firstAvailable:
      - {name: best, deviceClassName: none, allocationMode: ExactCount, count: 1}
      - {name: good, deviceClassName: gpus, ` + second + `}
`
	}
	got, err := worldOf(t, gpus, gpuClass, alternatives("allocationMode: ExactCount, count: 1")).Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Contains(t, got.Answer, "nothing is known here that is against it")
	got, err = worldOf(t, gpus, gpuClass, alternatives(`allocationMode: All, selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'A100'"}}]`)).Claim(t.Context(), "ml", "gpu")
	require.NoError(t, err)
	require.Equal(t, "It is not allocated, and cannot be: DeviceClass none of request r/best does not exist, and request r/good asks for all of 1 device (DeviceClass gpus), of which 1 has taints that it does not tolerate: worn:NoSchedule (its driver in ResourceSlice gpus; 1 device).", got.Answer)
}
