package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

func TestQuestionsAboutRBACDoNotWaitForTheClientOfTheEvictor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, err := w.Write([]byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	// A client like this could ask once.
	p := &program{local: clock.RealClock{}, connection: &rest.Config{Host: server.URL, QPS: 1e-6, Burst: 1}}
	authorizes, err := p.newAuthority()
	require.NoError(t, err)
	for i := range reviewBurst / 2 {
		decision, _, err := authorizes.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "alice"}, Verb: "tolerate", Resource: "taints", Name: fmt.Sprintf("key-%d", i), ResourceRequest: true,
		})
		require.NoError(t, err)
		require.Equal(t, authorizer.DecisionAllow, decision)
	}
}
