package toleration

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestRulingsSayWhoGrantsWhat(t *testing.T) {
	set := Compile([]v1alpha1.TolerationPolicy{
		policyOf(t, "open", `{taints: [{key: dedicated}], grants: [{namespaces: [apple]}]}`),
		policyOf(t, "shut", `{taints: [{key: "*"}], validationActions: [Warn]}`),
		policyOf(t, "other", `{taints: [{key: other}]}`),
	})
	got, err := set.Rulings(t.Context(), apple(), standing(t, `
		{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
		{key: dedicated, operator: Exists}`))
	require.NoError(t, err)
	require.Equal(t, []Ruling{
		{Policy: "open", Index: 1, Field: "tolerations[1]", Toleration: "key=dedicated operator=Exists", Granted: true, Allowed: "allowed in namespaces apple", Denies: true},
		{Policy: "shut", Index: 1, Field: "tolerations[1]", Toleration: "key=dedicated operator=Exists", Allowed: "nobody is allowed to tolerate it"},
	}, got)

	got, err = (*Set)(nil).Rulings(t.Context(), apple(), standing(t, dedicatedExists))
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRulingsAndAuditsAgree(t *testing.T) {
	d := newDice(t)
	for range 1000 {
		set, in := Compile(d.policies(4)), d.input()
		namespace, known := existing(in)
		violations, err := set.Audit(t.Context(), namespace, known)
		require.NoError(t, err)
		rulings, err := set.Rulings(t.Context(), namespace, known)
		require.NoError(t, err)
		for _, v := range violations {
			require.True(t, slices.ContainsFunc(rulings, func(r Ruling) bool {
				return r.Policy == v.Policy && r.Toleration == v.Toleration && !r.Granted
			}), "%v %v", v, rulings)
		}
		for _, r := range rulings {
			violated := slices.ContainsFunc(violations, func(v Ruling) bool { return v.Policy == r.Policy })
			require.True(t, r.Granted || violated, "%v %v", r, violations)
		}
	}
}
