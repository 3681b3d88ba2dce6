package rbac

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestF12AnEvictorApartShowsItsMetricsByHTTPSToWhoMaySeeThem(t *testing.T) {
	certificates, client := certificateOf(t)
	rights := filepath.Join(programs.Root, "deploy", "monitoring", "endpoint", "rbac.yaml")
	kubectl(t, nil, "apply", "-f", rights)
	t.Cleanup(func() {
		out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, "delete", "--ignore-not-found", "-f", rights)
		require.NoError(t, err, "%s", out)
	})
	another, err := install.Install(t.Context(), shared, install.Options{
		Name: "evictor-with-metrics", Programs: programs, Replica: true, Account: evictorAccount, Args: []string{"--components=evictor"},
		Patch: func(config map[string]any) {
			configure(config)
			metrics, _ := config["metrics"].(map[string]any)
			metrics["authorization"], metrics["certificateDirectory"] = "RBAC", certificates
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, another.Terminate(context.WithoutCancel(t.Context()))) })

	token := kubectl(t, nil, "-n", "tollgate-system", "create", "token", "tollgate-scraper")
	for sentence, tt := range map[string]struct {
		token  string
		status int
	}{
		"whoever may see metrics":         {token, http.StatusOK},
		"nobody that is known":            {"", http.StatusUnauthorized},
		"who may not, though it is known": {kubectl(t, nil, "-n", "tollgate-system", "create", "token", webhookAccount), http.StatusForbidden},
	} {
		t.Run(sentence, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(another.MetricsURL, "http://", "https://", 1), nil)
			require.NoError(t, err)
			if tt.token != "" {
				request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(tt.token))
			}
			response, err := client.Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, tt.status, response.StatusCode)
		})
	}
}

// certificateOf returns a folder with a certificate for 127.0.0.1, and a client that trusts
// it alone.
func certificateOf(t *testing.T) (string, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	folder := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
	return folder, server.Client()
}
