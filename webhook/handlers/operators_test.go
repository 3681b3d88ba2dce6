package handlers

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// busy is an authorizer of which tenants have asked too much.
var busy = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", errors.New("too many questions")
})

func TestOperatorsAreAnsweredWhileTenantsAskTooMuch(t *testing.T) {
	config := testConfig()
	config.Authorizer, config.Operators = busy, permitting("carol tolerate dedicated", "carol taint example.com/broken")

	t.Run("the label of a namespace", func(t *testing.T) {
		config := config
		config.Policies = dedicatedTo(t, `{namespaceSelector: {matchLabels: {tier: gold}}}`)
		review := asked(t, "namespaces", "", named("carol"), labelled("tier", "gold"), labelled())
		review.Request.Name, review.Request.Namespace = "apple", "apple"
		require.True(t, judgePod(t, config, review).Allowed)
	})
	t.Run("the taint of a node", func(t *testing.T) {
		policies := taintPolicies()
		policies[0].Spec.Setters = []v1alpha1.TaintSetter{{RBAC: true}}
		config := config
		config.Policies = currentPolicies{(*policyset.Set)(nil).WithTaints(policies)}
		review := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil, broken), nodeJSON(t, nil)), "carol")
		require.True(t, judgePod(t, config, review).Allowed)
	})
}
