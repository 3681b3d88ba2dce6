package webhook

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/auth"
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

// lenient is an API server that allows everything.
type lenient struct{}

func (lenient) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

func TestAUserWhoseQuestionIsNotPutIsToldSo(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, `{rbac: true}`)
	config.Authorizer = auth.NewAuthority(lenient{}, clock.RealClock{}, auth.AuthorityLimits{PerSecond: 0.1, Burst: 4})
	endpoint := Validate(config)
	create := func(namespace, user string) *httptest.ResponseRecorder {
		review := asUser(podReview(t, admissionv1.Create, tolerant, ""), user)
		review.Request.Namespace = namespace
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(marshal(t, review)))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		endpoint.ServeHTTP(answer, request)
		return answer
	}
	for _, user := range []string{"anna", "bert"} {
		require.Contains(t, create("apple", user).Body.String(), `"allowed":true`)
	}
	refused := create("apple", "carl")
	require.Equal(t, http.StatusInternalServerError, refused.Code, "no verdict")
	require.Contains(t, refused.Body.String(), `no decision could be made: too many questions about permissions of namespace "apple" are in line`)
	require.Contains(t, create("apple", "anna").Body.String(), `"allowed":true`, "an answer that is known needs no question")
}
