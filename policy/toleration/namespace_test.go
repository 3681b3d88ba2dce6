package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestC11LabelsThatGrantAreToldFromThoseThatDoNot(t *testing.T) {
	policies := []v1alpha1.TolerationPolicy{
		policyOf(t, "gold", `{taints: [{key: dedicated}, {key: "gpu.example.com/*"}, {key: dedicated, effects: [NoExecute]}], grants: [{namespaces: [infra]}, {namespaceSelector: {matchLabels: {tier: gold}}}], validationActions: [Warn]}`),
		policyOf(t, "open", `{taints: [{key: "*"}], grants: [{namespaceSelector: {matchExpressions: [{key: restricted, operator: DoesNotExist}]}}]}`),
		policyOf(t, "team", `{taints: [{key: team}], grants: [{namespaces: ["team-*"], namespaceSelector: {matchLabels: {tier: gold}}}]}`),
		policyOf(t, "name", `{taints: [{key: name}], grants: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: apple}}}]}`),
		policyOf(t, "both", `{taints: [{key: both}], grants: [{namespaceSelector: {matchLabels: {tier: lead}}}, {namespaceSelector: {matchExpressions: [{key: tier, operator: In, values: [lead]}]}}]}`),
		policyOf(t, "plain", `{taints: [{key: plain}], grants: [{namespaces: ["*"]}]}`),
	}
	set := Compile(policies)
	name := map[string]string{"kubernetes.io/metadata.name": "apple"}
	with := func(pairs ...string) map[string]string {
		labels := map[string]string{"kubernetes.io/metadata.name": "apple"}
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]] = pairs[i+1]
		}
		return labels
	}
	tests := map[string]struct {
		namespace    string
		old, current map[string]string
		want         []string
	}{
		"nothing changes":                              {"apple", with("tier", "gold"), with("tier", "gold"), nil},
		"a label that grants":                          {"apple", name, with("tier", "gold"), []string{"TolerationPolicy/gold"}},
		"a label that grants to a team":                {"team-a", with("tier", "iron"), with("tier", "gold"), []string{"TolerationPolicy/gold", "TolerationPolicy/team"}},
		"a label that grants nothing":                  {"apple", name, with("tier", "iron"), nil},
		"a label that withheld a grant goes":           {"apple", with("restricted", ""), name, []string{"TolerationPolicy/open"}},
		"a label that two grants ask for":              {"apple", name, with("tier", "lead"), []string{"TolerationPolicy/both"}},
		"all labels go":                                {"apple", with("restricted", ""), nil, []string{"TolerationPolicy/open"}},
		"a label that granted goes":                    {"apple", with("tier", "gold"), name, nil},
		"a namespace is created":                       {"apple", nil, name, nil},
		"a namespace is created with a label":          {"apple", nil, with("tier", "gold"), []string{"TolerationPolicy/gold"}},
		"a namespace that had no labels is no new one": {"apple", map[string]string{}, name, []string{"TolerationPolicy/name"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, newly := range set.NewlySatisfied(tt.namespace, tt.old, tt.current) {
				got = append(got, newly.Policy)
			}
			require.Equal(t, tt.want, got)
		})
	}

	newly := set.NewlySatisfied("apple", name, with("tier", "gold"))
	require.Equal(t, []Newly{{
		Policy: "TolerationPolicy/gold", Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
		Keys: []string{"dedicated", "gpu.example.com/*"}, Selector: "tier=gold",
	}}, newly)
	require.Equal(t, policy.Finding{
		Reason: policy.LabelNotGranted, Policy: "TolerationPolicy/gold", Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
		Field: "metadata.labels", Value: "tier=gold",
		Problem: "with these labels the namespace would be granted the taint gpu.example.com/*, which you may not tolerate yourself",
		Remedy:  `allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev "gpu.example.com/*"`,
	}, newly[0].Finding("gpu.example.com/*", field.NewPath("metadata", "labels")))
	require.Empty(t, (*Set)(nil).NewlySatisfied("apple", nil, nil))
}
