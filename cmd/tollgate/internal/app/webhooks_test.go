package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// allowing is an API server that accepts all tokens and permits everything.
func allowing(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		answer := `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			answer = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"scraper"}}}`
		}
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestF12ScrapesDoNotTakeFromTheClientsOfOthers(t *testing.T) {
	config := configv1alpha1.Default()
	config.Metrics.BindAddress = ":8080"
	// The connection's rate allows one request: the filter must have a rate of its own.
	options, err := metricsOptions(config, &rest.Config{Host: allowing(t).URL, QPS: 1e-6, Burst: 1}, nil, clock.RealClock{})
	require.NoError(t, err)
	filter, err := options.FilterProvider(nil, nil)
	require.NoError(t, err)
	handler, err := filter(logr.Discard(), http.NotFoundHandler())
	require.NoError(t, err)
	for i := range scrapeBurst / 2 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Authorization", fmt.Sprintf("Bearer %d", i))
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:4242", i) // Each has a share of its own.
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusNotFound, w.Code, "the guard lets it through")
	}
}

func TestQuestionsAboutRBACDoNotWaitForTheClientOfTheEvictor(t *testing.T) {
	// The client's rate allows one request.
	authorizes, err := newAuthority(&rest.Config{Host: allowing(t).URL, QPS: 1e-6, Burst: 1}, clock.RealClock{})
	require.NoError(t, err)
	for i := range reviewBurst / 2 {
		decision, _, err := authorizes.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "alice"}, Verb: "tolerate", Resource: "taints", Name: fmt.Sprintf("key-%d", i), ResourceRequest: true,
		})
		require.NoError(t, err)
		require.Equal(t, authorizer.DecisionAllow, decision)
	}
}
