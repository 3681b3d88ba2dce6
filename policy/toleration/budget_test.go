package toleration

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// expensive takes a third of what the expressions of a request may cost.
const expensive = "lists.range(4000).all(i, i >= 0)"

func many(n int) []corev1.Toleration {
	tolerations := make([]corev1.Toleration, n)
	for i := range tolerations {
		tolerations[i] = corev1.Toleration{Key: "dedicated", Value: "v" + strconv.Itoa(i), Effect: noSchedule}
	}
	return tolerations
}

func TestD01AGrantIsNotLostToTheNumberOfTolerations(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{policyOf(t, "p", `{taints: [{key: dedicated}], grants: [{expression: "`+expensive+` && request.namespace == 'apple'"}]}`)})
	decision := judge(t, set, inputOf("apple", many(16)...))
	require.Equal(t, policy.Allowed, decision.Verdict, "%v", decision.Findings)
}

func TestD01WhatOnlyWarnsTakesNothingFromWhatRefuses(t *testing.T) {
	const costly = expensive + ` && toleration.value != ''`
	for name, first := range map[string]string{
		"a grant of a policy that audits":    `{taints: [{key: dedicated}], validationActions: [Audit], grants: [{expression: "` + costly + `"}]}`,
		"a condition of a policy that warns": `{taints: [{key: dedicated}], validationActions: [Warn], matchConditions: [{name: a, expression: "` + expensive + ` && request.name != 'a'"}, {name: b, expression: "` + expensive + ` && request.name != 'b'"}, {name: c, expression: "` + expensive + ` && request.name != 'c'"}]}`,
		"a message of a policy that warns":   `{taints: [{key: dedicated}], validationActions: [Warn], messageExpression: "` + costly + ` ? toleration.value : 'b'"}`,
	} {
		t.Run(name, func(t *testing.T) {
			set := Compile([]v1alpha1.TolerationPolicy{
				policyOf(t, "a", first),
				policyOf(t, "b", `{taints: [{key: dedicated}], grants: [{expression: "`+expensive+` && toleration.value != 'x'"}]}`),
			})
			require.Empty(t, set.Problems())
			in := inputOf("apple", many(3)...)
			in.Review.Request.Name = "web-0"
			decision := judge(t, set, in)
			require.NotEqual(t, policy.Denied, decision.Verdict, "%v", decision.Findings)
		})
	}
}

func TestD01WhatAuditKnowsTakesNothingFromOtherPolicies(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{
		policyOf(t, "a", `{taints: [{key: dedicated}], grants: [{expression: "`+expensive+` && toleration.value == 'x'"}]}`),
		policyOf(t, "b", `{taints: [{key: dedicated}], grants: [{expression: "`+expensive+` && toleration.value != 'x'"}]}`),
	})
	violations, err := set.Audit(t.Context(), apple(), Input{Asked: []Asked{{New: many(2)}}})
	require.NoError(t, err)
	require.Len(t, violations, 1, "policy a is violated by the first toleration, and need not be asked about the second: %v", violations)
	require.Equal(t, "a", violations[0].Policy)
}
