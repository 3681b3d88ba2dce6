package check

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gomodules.xyz/jsonpatch/v2"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// repairing has a policy that gives a toleration, one that lets nobody have all of it, and
// a RuntimeClass that brings another.
const repairing = `
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: repairing}
spec:
  match: {namespaces: ["*"]}
  pod: {tolerations: [{key: broken, operator: Exists}]}
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: broken}
spec: {taints: [{key: broken, effects: [NoExecute]}]}
---
` + special

func TestTP04PluginsSeeWhatPoliciesGive(t *testing.T) {
	t.Parallel()
	const tolerates = "tolerations: [{key: broken, operator: Equal, value: disk}]"
	const requests = "containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]"
	for sentence, c := range map[string]struct {
		pod  string
		want []string
	}{
		"no plugin merges tolerations":  {tolerates, []string{"spec.tolerations[0]", "spec.tolerations[3]"}},
		"RuntimeClass does":             {"runtimeClassName: special, " + tolerates, []string{"spec.tolerations[3]"}},
		"PodTolerationRestriction does": {requests + ", " + tolerates, []string{"spec.tolerations[3]"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checker := checkerOf(t, repairing, func(config *configv1alpha1.TollgateConfiguration) {
				config.Admission.PodTolerationRestriction = true
			})
			result := checker.Judge(t.Context(), parsed(t, pod("iron", c.pod))[0], Subject{User: "alice"})
			var fields []string
			for i := range result.Findings {
				fields = append(fields, result.Findings[i].Field)
			}
			require.Equal(t, c.want, fields)
			added := slices.DeleteFunc(result.Given, func(o jsonpatch.Operation) bool { return o.Operation == "test" })
			require.Len(t, added, 1, "what is there by then is not given once more")
		})
	}
}

func TestPoliciesSeeWhatPluginsMakeOfWhatTheyGave(t *testing.T) {
	t.Parallel()
	// It is for pods that tolerate no single value, as the RuntimeClass leaves this one.
	const careful = `
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: careful}
spec:
  match:
    namespaces: ["*"]
    matchConditions: [{name: no-value, expression: "!object.spec.tolerations.exists(t, has(t.value))"}]
  pod: {nodeSelector: {pool: careful}}
---
`
	result := checkerOf(t, careful+repairing).Judge(t.Context(),
		parsed(t, pod("iron", "runtimeClassName: special, tolerations: [{key: broken, operator: Equal, value: disk}]"))[0], Subject{User: "alice"})
	var paths []string
	for _, o := range result.Given {
		if o.Operation == "add" {
			paths = append(paths, o.Path)
		}
	}
	require.Equal(t, []string{"/spec/tolerations/-", "/spec/nodeSelector"}, paths, "%+v", result)
}
