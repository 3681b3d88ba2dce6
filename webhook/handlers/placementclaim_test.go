package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestClaimsAreGivenTolerations(t *testing.T) {
	p := v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "grace"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{DeviceClasses: []string{"gpu.example.com"}},
			Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{
				{Key: "degraded", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			}},
		},
	}
	given := `{"key":"degraded","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	tests := []struct{ name, spec, want string }{
		{
			"every request, and every alternative",
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"gpu.example.com","adminAccess":true}},
			  {"name":"b","firstAvailable":[{"name":"x","deviceClassName":"other","tolerations":[{"key":"k","operator":"Exists"}]},{"name":"y","deviceClassName":"other","tolerations":[]}]}]}}`,
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"gpu.example.com","adminAccess":true,"tolerations":[` + given + `]}},
			  {"name":"b","firstAvailable":[{"name":"x","deviceClassName":"other","tolerations":[{"key":"k","operator":"Exists"},` + given + `]},{"name":"y","deviceClassName":"other","tolerations":[` + given + `]}]}]}}`,
		},
		{
			"what covers it is enough",
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"gpu.example.com","tolerations":[{"operator":"Exists"}]}}]}}`,
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"gpu.example.com","tolerations":[{"operator":"Exists"}]}}]}}`,
		},
		{
			"another class",
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"other"}}]}}`,
			`{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"other"}}]}}`,
		},
		{"no requests", `{"devices":{"requests":null}}`, `{"devices":{"requests":null}}`},
		{"a request of a kind that is not known", `{"devices":{"requests":[{"name":"a","someOf":{}}]}}`, `{"devices":{"requests":[{"name":"a","someOf":{}}]}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := by(testPlacer(), placements(p)).mutating(request.mutateClaim)
			once := placedBy(t, claim, `{"metadata":{"name":"c"},"spec":`+tt.spec+`}`)
			require.JSONEq(t, `{"metadata":{"name":"c"},"spec":`+tt.want+`}`, once)
			require.JSONEq(t, once, placedBy(t, claim, once))

			template := ofTemplates(by(testPlacer(), placements(p)).mutating(request.mutateClaim))
			once = placedBy(t, template, `{"metadata":{"name":"c"},"spec":{"metadata":{},"spec":`+tt.spec+`}}`)
			require.JSONEq(t, `{"metadata":{"name":"c"},"spec":{"metadata":{},"spec":`+tt.want+`}}`, once)
			require.JSONEq(t, once, placedBy(t, template, once))
		})
	}
	t.Run("broken ones are no verdict", func(t *testing.T) {
		for _, broken := range []string{
			`[]`, `{"spec":[]}`, `{"metadata":{"labels":[]},"spec":{}}`, `{"metadata":[]}`, `{"spec":{"devices":[]}}`, `{"spec":{"devices":{"requests":{}}}}`,
		} {
			_, err := answer(t.Context(), by(testPlacer(), placements(p)).mutating(request.mutateClaim), creating(broken))
			require.ErrorAs(t, err, new(*badReviewError), broken)
		}
		_, err := answer(t.Context(), ofTemplates(by(testPlacer(), placements(p)).mutating(request.mutateClaim)), creating(`{"spec":[]}`))
		require.ErrorAs(t, err, new(*badReviewError))
	})
	t.Run("the labels of a template are those of its claims", func(t *testing.T) {
		labelled := p
		labelled.Spec.Match.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		template := ofTemplates(by(testPlacer(), placements(labelled)).mutating(request.mutateClaim))
		spec := `"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"gpu.example.com"}}]}}`
		outside := `{"metadata":{"labels":{"a":"b"}},"spec":{"metadata":{},` + spec + `}}`
		require.JSONEq(t, outside, placedBy(t, template, outside))
		require.Contains(t, placedBy(t, template, `{"metadata":{},"spec":{"metadata":{"labels":{"a":"b"}},`+spec+`}}`), given)
	})
}

func TestPlacementOfClaimsIsWarnedOf(t *testing.T) {
	given := v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "grace"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
			Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{{Key: "k", Operator: resourcev1.DeviceTolerationOpExists}}},
		},
	}
	p, policies := testPlacer(), placements(given).Current()
	object := `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"x"}}]}}}`
	found, err := request{p, creating(object), policies}.misplacedClaim(t.Context())
	require.NoError(t, err)
	decision := policy.Decide(found)
	require.Equal(t, policy.Allowed, decision.Verdict)
	require.Len(t, decision.Findings, 1)
	require.Equal(t, "spec.devices.requests[0].exactly.tolerations", decision.Findings[0].Field)

	placed := placedBy(t, by(p, placements(given)).mutating(request.mutateClaim), object)
	found, err = request{p, creating(placed), policies}.misplacedClaim(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	r := request{p, creating(`[]`), policies}
	_, err = r.misplacedClaim(t.Context())
	require.NoError(t, err)
	require.ErrorAs(t, r.Err(), new(*badReviewError))
}
