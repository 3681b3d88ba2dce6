package handlers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

func labelled(pairs ...string) *corev1.Namespace {
	labels := map[string]string{corev1.LabelMetadataName: "apple"}
	for i := 0; i+1 < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apple", Labels: labels}}
}

func TestC11WhoLabelsANamespaceMustBeAllowedWhatTheLabelGrants(t *testing.T) {
	const gold = `{namespaceSelector: {matchLabels: {tier: gold}}}`
	tests := map[string]struct {
		who      string
		grants   string
		old, now *corev1.Namespace
		denied   bool
	}{
		"a namespace is created with the label":               {"mallory", gold, nil, labelled("tier", "gold"), true},
		"a namespace is created without it":                   {"mallory", gold, nil, labelled("tier", "tin"), false},
		"a namespace is created by who may":                   {"carol", gold, nil, labelled("tier", "gold"), false},
		"the label comes":                                     {"mallory", gold, labelled(), labelled("tier", "gold"), true},
		"the label changes":                                   {"mallory", gold, labelled("tier", "tin"), labelled("tier", "gold"), true},
		"the label comes from who may":                        {"carol", gold, labelled(), labelled("tier", "gold"), false},
		"the label goes":                                      {"mallory", gold, labelled("tier", "gold"), labelled(), false},
		"C28 the label stood there":                           {"mallory", gold, labelled("tier", "gold"), labelled("tier", "gold", "a", "b"), false},
		"a label goes that a selector does not want":          {"mallory", `{namespaceSelector: {matchExpressions: [{key: open, operator: DoesNotExist}]}}`, labelled("open", "no"), labelled(), true},
		"a namespace is created with no such label":           {"mallory", `{namespaceSelector: {matchExpressions: [{key: open, operator: DoesNotExist}]}}`, nil, labelled(), false},
		"its name is the label":                               {"mallory", `{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: apple}}}`, nil, labelled(), false},
		"another grant was satisfied before, this is another": {"mallory", `{namespaceSelector: {matchLabels: {a: b}}}, ` + gold, labelled("a", "b"), labelled("a", "b", "tier", "gold"), true},
		"the namespace is not among those of the grant":       {"mallory", `{namespaces: [banana], namespaceSelector: {matchLabels: {tier: gold}}}`, labelled(), labelled("tier", "gold"), false},
	}
	for name, tt := range tests {
		for _, subresource := range []string{"", "status", "finalize"} {
			t.Run(subresource+" "+name, func(t *testing.T) {
				config := testConfig()
				config.Policies = dedicatedTo(t, tt.grants)
				config.Authorizer = permitting("carol tolerate dedicated")
				var old any
				if tt.old != nil {
					old = tt.old
				}
				review := asked(t, "namespaces", subresource, named(tt.who), tt.now, old)
				review.Request.Name, review.Request.Namespace = "apple", "apple"
				response := judgePod(t, config, review)
				if !tt.denied {
					require.True(t, response.Allowed)
					return
				}
				requireRefused(t, response, policy.LabelNotGranted, "metadata.labels", "TolerationPolicy/dedicated", "taints.tollgate.dev")
			})
		}
	}
}

func TestALabelForWhichAGuardGrantsItsTaintsIsAskedFor(t *testing.T) {
	config := testConfig()
	config.Policies = holding{policyset.None().WithTolerations(nil).WithPlacement([]v1alpha1.PlacementPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "gold", UID: "gold", Generation: 1},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}},
			Guard: &v1alpha1.PlacementGuard{Taints: []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "gold", Effect: corev1.TaintEffectNoSchedule}}},
		},
	}})}
	config.Authorizer = permitting("carol tolerate dedicated")
	review := func(who string) admission.Response {
		return judgePod(t, config, asked(t, "namespaces", "", named(who), labelled("tier", "gold"), labelled()))
	}
	requireRefused(t, review("mallory"), policy.LabelNotGranted, "metadata.labels", "PlacementPolicy/gold", "taints.tollgate.dev")
	require.True(t, review("carol").Allowed)
}

func TestAllThatALabelGrantsIsAskedFor(t *testing.T) {
	config := testConfig()
	config.Policies = granting(t, map[string]string{
		"one": `{taints: [{key: one}, {key: "two.example.com/*"}], grants: [{namespaceSelector: {matchLabels: {tier: gold}}}]}`,
		"all": `{taints: [{key: "*"}], grants: [{namespaceSelector: {matchLabels: {tier: gold}}}], validationActions: [Warn]}`,
	})
	review := asked(t, "namespaces", "", named("carol"), labelled("tier", "gold"), labelled())
	config.Authorizer = permitting("carol tolerate one", "carol tolerate two.example.com/*")
	response := judgePod(t, config, review)
	require.True(t, response.Allowed)
	require.Len(t, response.Warnings, 1)
	require.Contains(t, response.Warnings[0], "TolerationPolicy/all")

	config.Authorizer = permitting("carol tolerate one", "carol tolerate *")
	response = judgePod(t, config, review)
	requireRefused(t, response, policy.LabelNotGranted, "metadata.labels", "TolerationPolicy/one", "two.example.com/*")
	require.Empty(t, response.Warnings)
}

// questioned counts the questions that it passes on.
type questioned struct {
	authorizer.Authorizer

	asked *int
}

func (c questioned) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	*c.asked++
	return c.Authorizer.Authorize(ctx, a)
}

// goldenFor returns as many policies that grant something by the same label, and each
// of which has a key of its own and one in common with the others.
func goldenFor(t *testing.T, denying, warning int) holding {
	t.Helper()
	specs := map[string]string{}
	for i := range denying + warning {
		actions := "Deny"
		if i < warning {
			actions = "Warn" // and sorted first by name
		}
		specs[fmt.Sprintf("p%04d", i)] = fmt.Sprintf(`{taints: [{key: common}, {key: own-%d}], validationActions: [%s],
			grants: [{namespaceSelector: {matchLabels: {tier: gold}}}]}`, i, actions)
	}
	return granting(t, specs)
}

func TestALabelOfManyPoliciesIsFewQuestionsAndAShortAnswer(t *testing.T) {
	const many = 300
	tests := map[string]struct {
		who              string
		denying, warning int
		questions        int
		denied           bool
		said             int
	}{
		"by who may tolerate everything":         {"root", many, 0, 1, false, 0},
		"by who may tolerate nothing":            {"mallory", many, 0, 2, true, policy.MaxFindings},
		"by who may tolerate what is common":     {"carol", many, 0, 1 + policy.MaxFindings, true, policy.MaxFindings},
		"policies that warn hide no refusal":     {"mallory", 1, many, 2, true, policy.MaxFindings},
		"policies that only warn":                {"mallory", 0, many, 2, false, maxWarnings},
		"as many as there is room for are asked": {"mallory", policy.MaxFindings - 1, 0, 2, true, policy.MaxFindings - 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var questions int
			config := testConfig()
			config.Policies = goldenFor(t, tt.denying, tt.warning)
			config.Authorizer = questioned{permitting("root tolerate ", "carol tolerate common"), &questions}
			response := judgePod(t, config, asked(t, "namespaces", "", named(tt.who), labelled("tier", "gold"), labelled()))
			require.Equal(t, tt.questions, questions)
			require.Equal(t, !tt.denied, response.Allowed)
			if tt.denied {
				require.LessOrEqual(t, len(response.Result.Details.Causes), tt.said)
				require.NotEmpty(t, response.Result.Details.Causes)
			} else {
				require.Len(t, response.Warnings, tt.said)
			}
			require.Less(t, len(marshal(t, response)), 16<<10)
		})
	}
}

func TestWhoCannotBeAskedAboutLabelsIsNoVerdict(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, `{namespaceSelector: {matchLabels: {tier: gold}}}`)
	require.ErrorContains(t, judgeFault(t, config, asked(t, "namespaces", "", named("broken"), labelled("tier", "gold"), labelled())), "unexpected EOF")
	var bad *badReviewError
	require.ErrorAs(t, judgeFault(t, config, asked(t, "namespaces", "", named("bob"), `{"metadata":{"labels":{"a":7}}}`, labelled())), &bad)
}
