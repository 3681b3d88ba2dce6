package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Published is what an issuer publishes about its tokens.
type Published struct {
	// Issuer names it in tokens. It may be empty where it is known from elsewhere.
	Issuer string
	// Keys is a JSON Web Key Set.
	Keys []byte
}

// Source reads what is published. It must end when its context does.
type Source func(ctx context.Context) (Published, error)

// The paths where an API server publishes, which ServiceAccounts may read by the ClusterRole
// system:service-account-issuer-discovery (pkg/serviceaccount/openidmetadata.go).
const (
	pathDiscovery = "/.well-known/openid-configuration"
	pathKeys      = "/openid/v1/jwks"
)

// Get reads what an API server serves at a path.
type Get func(ctx context.Context, path string) ([]byte, error)

// FromAPIServer returns what an API server publishes about itself. The address of the keys
// in its discovery document is not followed: others may have to take them from there, and
// a client of the API server does not.
func FromAPIServer(get Get) Source {
	return func(ctx context.Context) (Published, error) {
		discovery, err := get(ctx, pathDiscovery)
		if err != nil {
			return Published{}, fmt.Errorf("get %s: %w", pathDiscovery, err)
		}
		var document struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(discovery, &document); err != nil {
			return Published{}, fmt.Errorf("decode %s: %w", pathDiscovery, err)
		}
		keys, err := get(ctx, pathKeys)
		if err != nil {
			return Published{}, fmt.Errorf("get %s: %w", pathKeys, err)
		}
		return Published{Issuer: document.Issuer, Keys: keys}, nil
	}
}

// smallestRSA is the least bits that an RSA key is believed with.
const smallestRSA = 2048

// usable reports whether tokens can be verified by a key.
func usable(key *jose.JSONWebKey) bool {
	if key.KeyID == "" || (key.Use != "" && key.Use != "sig") || !key.IsPublic() || !key.Valid() ||
		!slices.Contains(algorithms(), jose.SignatureAlgorithm(key.Algorithm)) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return key.Algorithm == string(jose.RS256) && public.N.BitLen() >= smallestRSA
	case *ecdsa.PublicKey:
		return key.Algorithm != string(jose.RS256)
	default:
		return false
	}
}
