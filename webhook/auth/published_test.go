package auth

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
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
			published, err := FromAPIServer(func(_ context.Context, path string) ([]byte, error) {
				answer, ok := tt.answers[path]
				if !ok {
					return nil, errors.New("forbidden")
				}
				return []byte(answer), nil
			})(t.Context())
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, published)
		})
	}
}
