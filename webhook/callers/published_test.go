package callers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestWhatAnAPIServerPublishesIsReadFromItself(t *testing.T) {
	tests := map[string]struct {
		answers map[string]string
		want    Published
		err     string
	}{
		"an API server": {
			answers: map[string]string{
				pathDiscovery: `{"issuer":"https://issuer","jwks_uri":"https://elsewhere/keys"}`,
				pathKeys:      `{"keys":[]}`,
			},
			want: Published{Issuer: "https://issuer", Keys: []byte(`{"keys":[]}`)},
		},
		"one that does not let its keys be read": {
			answers: map[string]string{pathDiscovery: `{"issuer":"https://issuer"}`},
			err:     "get /openid/v1/jwks",
		},
		"one that does not let its issuer be read": {
			answers: map[string]string{pathKeys: `{"keys":[]}`},
			err:     "get /.well-known/openid-configuration",
		},
		"something else": {
			answers: map[string]string{pathDiscovery: `<html>`, pathKeys: `{"keys":[]}`},
			err:     "decode /.well-known/openid-configuration",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, ok := tt.answers[r.URL.Path]
				if !ok {
					http.Error(w, "forbidden", http.StatusForbidden)
					return
				}
				if _, err := w.Write([]byte(answer)); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			published, err := FromAPIServer(clientset.Discovery().RESTClient())(t.Context())
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, published)
		})
	}
}
