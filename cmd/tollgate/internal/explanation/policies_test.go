package explanation

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	got, err := w.Pod(t.Context(), "ml", "p", noon)
	require.NoError(t, err)
	given := map[string]bool{}
	for _, g := range got.Placement.Gifts {
		given[g.Value] = g.Has
	}
	require.Equal(t, map[string]bool{"class=a": true, "resource=a": false, "object=a": false}, given)
	require.Equal(t, map[string]string{"asks": "a matchCondition asks who made the pod, which nothing tells any more"}, got.Placement.Unknown)
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
	got, err := worldOf(t, gpus, gpuClass, alternatives("allocationMode: ExactCount, count: 1")).Claim(t.Context(), "ml", "gpu", noon)
	require.NoError(t, err)
	require.Contains(t, got.Answer, "nothing is known here that is against it")
	got, err = worldOf(t, gpus, gpuClass, alternatives("allocationMode: All")).Claim(t.Context(), "ml", "gpu", noon)
	require.NoError(t, err)
	require.Equal(t, "It is not allocated, and cannot be: DeviceClass none of request r/best does not exist, and request r/good asks for all of 2 devices (DeviceClass gpus), of which 1 has taints that it does not tolerate: worn:NoSchedule (its driver in ResourceSlice gpus; 1 device).", got.Answer)
}
