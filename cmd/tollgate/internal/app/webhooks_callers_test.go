package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Audiences as an API server builds them, validateWebhookAudience in
// pkg/registry/core/serviceaccount/storage/token.go.
func TestTokensAreForTheURLThatTheAPIServerCalls(t *testing.T) {
	tests := map[string]struct {
		edit             func(*configv1alpha1.TollgateConfiguration)
		mutate, validate string
	}{
		"a Service": {
			func(*configv1alpha1.TollgateConfiguration) {},
			"https://tollgate.tollgate-system.svc:443/mutate", "https://tollgate.tollgate-system.svc:443/validate",
		},
		"a Service of another name": {
			func(c *configv1alpha1.TollgateConfiguration) { c.Namespace, c.Certificates.ServiceName = "ns", "svc" },
			"https://svc.ns.svc:443/mutate", "https://svc.ns.svc:443/validate",
		},
		"a URL": {
			func(c *configv1alpha1.TollgateConfiguration) { c.Webhook.URL = "https://127.0.0.1:9443" },
			"https://127.0.0.1:9443/mutate", "https://127.0.0.1:9443/validate",
		},
		"an audience of its own": {
			func(c *configv1alpha1.TollgateConfiguration) {
				c.Webhook.URL, c.Webhook.Authentication.Tokens.Audience = "https://127.0.0.1:9443", "https://tollgate.example.com"
			},
			"https://tollgate.example.com/mutate", "https://tollgate.example.com/validate",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := configv1alpha1.Default()
			tt.edit(config)
			require.Equal(t, map[string]auth.Endpoint{
				"mutate":   {Audience: tt.mutate, Kind: auth.Mutating, Name: "tollgate"},
				"validate": {Audience: tt.validate, Kind: auth.Validating, Name: "tollgate"},
			}, tokenEndpoints(config))
		})
	}
}

func TestKeysAreAskedForAsTheTypeThatTheyHave(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openid/v1/jwks" || !strings.Contains(r.Header.Get("Accept"), "application/jwk-set+json") {
			http.Error(w, "not acceptable", http.StatusNotAcceptable)
			return
		}
		if _, err := w.Write([]byte(`{"keys":[]}`)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	clientset, err := clientWithin(&rest.Config{Host: server.URL}, keysQPS, keysQPS)
	require.NoError(t, err)
	get := getFrom(clientset.Discovery().RESTClient())
	content, err := get(t.Context(), "/openid/v1/jwks")
	require.NoError(t, err)
	require.JSONEq(t, `{"keys":[]}`, string(content))
	_, err = get(t.Context(), "/elsewhere")
	require.Error(t, err)
}

func TestNobodyIsAskedWhoHeIsInModeOff(t *testing.T) {
	config := configv1alpha1.Default()
	config.Webhook.Authentication.Mode = configv1alpha1.AuthenticationOff
	known, err := (&program{config: config}).newCallers()
	require.NoError(t, err)
	require.Nil(t, known)
}
