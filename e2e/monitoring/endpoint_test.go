package monitoring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ask returns what is answered to a GET with a bearer token, or without any.
func ask(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := insecure.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func tokenOf(t *testing.T, serviceAccount string) string {
	t.Helper()
	client, err := east.client()
	require.NoError(t, err)
	request := &authenticationv1.TokenRequest{}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), serviceAccount, request, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

func TestF12MetricsAreShownToTheScraperAndToNobodyElse(t *testing.T) {
	url := strings.Replace(east.tollgate.MetricsURL, "http://", "https://", 1)
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"no token":                              {"", http.StatusUnauthorized},
		"a token that nobody issued":            {"eyJhbGciOiJub25lIn0.e30.", http.StatusUnauthorized},
		"a ServiceAccount that has no right to": {tokenOf(t, "default"), http.StatusForbidden},
		"the scraper":                           {tokenOf(t, "tollgate-scraper"), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, err := ask(t.Context(), url, test.token)
			require.NoError(t, err)
			require.Equal(t, test.want, status, body)
			require.Equal(t, test.want == http.StatusOK, strings.Contains(body, "tollgate_"))
		})
	}
	t.Run("by plain HTTP nobody", func(t *testing.T) {
		status, body, err := ask(t.Context(), east.tollgate.MetricsURL, tokenOf(t, "tollgate-scraper"))
		if err != nil {
			// The refusal is lost if the connection is closed before all of the request was read.
			require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF), "%v", err)
			return
		}
		require.Equal(t, http.StatusBadRequest, status)
		require.NotContains(t, body, "tollgate_")
	})
}

func TestF12NoProfilesAreServed(t *testing.T) {
	token := tokenOf(t, "tollgate-scraper")
	metrics := strings.TrimSuffix(strings.Replace(east.tollgate.MetricsURL, "http://", "https://", 1), "/metrics")
	for _, base := range []string{metrics, east.tollgate.HealthURL, east.tollgate.WebhookURL} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
			status, _, err := ask(t.Context(), base+path, token)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, status, base+path)
		}
	}
}

func TestTheScraperMayDoNothingElse(t *testing.T) {
	config := east.As("system:serviceaccount:"+namespace+":tollgate-scraper", "system:serviceaccounts")
	require.NotNil(t, config)
	allowed := rulesOf(t, config)
	require.Equal(t, []string{"get /tollgate/metrics"}, allowed)
}
