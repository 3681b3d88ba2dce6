package auth

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// FuzzToken shows made-up tokens: only what was signed is believed.
func FuzzToken(f *testing.F) {
	by := newSigner(f, "one", jose.ES256)
	known := acceptingTokens(f, true, publishing(by, newSigner(f, "two", jose.RS256)))
	payload, err := json.Marshal(forValidating())
	require.NoError(f, err)
	encode := base64.RawURLEncoding.EncodeToString
	good := forValidating().signedBy(f, by)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(encode([]byte(`{"alg":"none","kid":"one"}`)) + "." + encode(payload) + ".")
	f.Add(encode([]byte(`{"alg":"RS256","kid":"two","b64":false,"crit":["b64"]}`)) + "." + encode(payload) + "." + encode(make([]byte, 256)))
	f.Add(encode([]byte(`{"alg":"ES256","kid":"one","jwk":{"kty":"EC","crv":"P-256"}}`)) + "..")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		// None is remembered: each shall be verified.
		known.tokens.verified = verified[tokenContext]{}
		_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
		if err == nil {
			signed, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
			require.NoError(t, err)
			require.JSONEq(t, string(payload), string(signed))
		}
	})
}

// FuzzClaims signs made-up claims: those that are believed say what a token for this webhook
// has to say, as another decoder reads them.
func FuzzClaims(f *testing.F) {
	by := newSigner(f, "one", jose.ES256)
	known := acceptingTokens(f, true, publishing(by))
	for _, c := range []content{
		forValidating(),
		forValidating().with(content{"aud": endpoints()[validate].Audience}),
		forValidating().with(content{"nbf": nil}),
		forValidating().withKubernetes(content{"mutatingwebhookconfiguration": map[string]any{"name": "tollgate"}}),
		forValidating().withKubernetes(content{"attestations": map[string]any{attestedGroups: []string{"apps", ""}}}),
	} {
		payload, err := json.Marshal(c)
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Add([]byte(`{"iss":1,"aud":[],"exp":-1e18,"kubernetes.io":[]}`))
	f.Add([]byte(`{"exp":9223372036854775807,"iat":-9223372036854775808}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > maxToken/2 {
			return
		}
		found, err := known.tokens.identify(t.Context(), sign(t, by.algorithm, by.key, by.id, payload), endpoints()[validate])
		if err != nil {
			return
		}
		var said struct {
			Issuer   string  `json:"iss"`
			Audience any     `json:"aud"`
			Expiry   float64 `json:"exp"`
			IssuedAt float64 `json:"iat"`
			Private  struct {
				Bound  map[string]string   `json:"validatingwebhookconfiguration"`
				Groups map[string][]string `json:"attestations"`
			} `json:"kubernetes.io"`
		}
		_ = json.Unmarshal(payload, &said) // Names may be of other types: they are not looked at.
		require.Equal(t, issuerURL, said.Issuer)
		if list, ok := said.Audience.([]any); ok {
			require.Len(t, list, 1)
			said.Audience = list[0]
		}
		require.Equal(t, endpoints()[validate].Audience, said.Audience)
		require.LessOrEqual(t, said.Expiry-said.IssuedAt, maxLife.Seconds()+1)
		require.Greater(t, said.Expiry+leeway.Seconds()+1, float64(now.Unix()))
		require.Equal(t, "tollgate", said.Private.Bound["name"])
		require.True(t, slices.Equal(found.groups, said.Private.Groups[attestedGroups]))
	})
}
