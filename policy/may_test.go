package policy

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestMayAsksForTheVerbOnTheKey(t *testing.T) {
	t.Parallel()
	var asked authorizer.Attributes
	by := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return authorizer.DecisionAllow, "", nil
	})
	ok, err := May(t.Context(), by, &user.DefaultInfo{Name: "anna"}, VerbTolerate, "example.com/gpu")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "anna"}, Verb: "tolerate", APIGroup: "tollgate.dev", APIVersion: "v1alpha1",
		Resource: "taints", Name: "example.com/gpu", ResourceRequest: true,
	}, asked)

	_, err = May(t.Context(), by, &user.DefaultInfo{Name: "anna"}, VerbTaint, "")
	require.NoError(t, err)
	require.Equal(t, "taint", asked.GetVerb())
	require.Empty(t, asked.GetName(), "no name asks for all of them")
}

func TestMayIsAYesOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	tests := map[string]struct {
		decision authorizer.Decision
		err      error
		want     bool
	}{
		"allowed":                {authorizer.DecisionAllow, nil, true},
		"denied":                 {authorizer.DecisionDeny, nil, false},
		"no opinion":             {authorizer.DecisionNoOpinion, nil, false},
		"an error is no answer":  {authorizer.DecisionNoOpinion, unreachable, false},
		"whatever comes with it": {authorizer.DecisionAllow, unreachable, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return tt.decision, "", tt.err
			})
			got, err := May(t.Context(), by, &user.DefaultInfo{Name: "anna"}, VerbTolerate, "gpu")
			require.Equal(t, tt.want, got)
			require.ErrorIs(t, err, tt.err)
		})
	}
}

func TestInfoOfIsTheWholeUserC19(t *testing.T) {
	t.Parallel()
	got := UserInfo(&authenticationv1.UserInfo{
		Username: "system:node:evil", UID: "7", Groups: []string{"team-a"},
		Extra: map[string]authenticationv1.ExtraValue{"example.com/ticket": {"T-1", "T-2"}},
	})
	require.Equal(t, &user.DefaultInfo{
		Name: "system:node:evil", UID: "7", Groups: []string{"team-a"},
		Extra: map[string][]string{"example.com/ticket": {"T-1", "T-2"}},
	}, got)
}

func TestAccountInfoIsAServiceAccountAsTheAPIServerKnowsIt(t *testing.T) {
	t.Parallel()
	require.Equal(t, &user.DefaultInfo{
		Name:   "system:serviceaccount:shop:bot",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
	}, AccountInfo("shop", "bot"))
}
