package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// The kinds of keys that an API server may have.
func TestF06TokensOfTheIssuerAreAcceptedByEveryAlgorithmOfAPIServers(t *testing.T) {
	for _, algorithm := range algorithms() {
		t.Run(string(algorithm), func(t *testing.T) {
			by := newSigner(t, "one", algorithm)
			known := acceptingTokens(t, true, publishing(newSigner(t, "other", jose.ES256), by))
			token := forValidating().signedBy(t, by)
			for range 2 { // the second from what was remembered
				found, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
				require.NoError(t, err)
				require.Equal(t, []string{everyGroup}, found.groups)
				require.Equal(t, now.Add(maxLife+leeway), found.until.UTC())
			}
		})
	}
}

func TestF06TokensThatAreNotForThisWebhookAreRefused(t *testing.T) {
	good := forValidating()
	tests := map[string]struct {
		token content
		want  error
	}{
		"another issuer":                        {good.with(content{"iss": "https://example.com"}), errIssuer},
		"no issuer":                             {good.with(content{"iss": nil}), errIssuer},
		"the audience of the API server":        {good.with(content{"aud": []string{issuerURL}}), errAudience},
		"the audience of the other webhook":     {good.with(content{"aud": []string{endpoints()[mutate].Audience}}), errAudience},
		"an audience with a slash more":         {good.with(content{"aud": []string{endpoints()[validate].Audience + "/"}}), errAudience},
		"a second audience":                     {good.with(content{"aud": []string{endpoints()[validate].Audience, "b"}}), errAudience},
		"no audience":                           {good.with(content{"aud": nil}), errAudience},
		"an empty audience":                     {good.with(content{"aud": ""}), errAudience},
		"it has expired":                        {good.with(content{"iat": now.Add(-maxLife).Unix(), "exp": now.Add(-leeway).Unix()}), errExpired},
		"it expires at a time that is too late": {good.with(content{"exp": now.Add(maxLife + time.Second).Unix()}), errLife},
		"it never expires":                      {good.with(content{"exp": nil}), errLife},
		"it does not say since when it is":      {good.with(content{"iat": nil}), errLife},
		"it is not valid yet":                   {good.with(content{"nbf": now.Add(leeway + time.Second).Unix()}), errNotYet},
		"it is issued later": {
			good.with(content{"iat": now.Add(leeway + time.Second).Unix(), "exp": now.Add(maxLife).Unix()}), errNotYet,
		},
		"a time beyond all times": {good.with(content{"exp": 1e300}), errSignature},
		"a time that is text":     {good.with(content{"exp": "tomorrow"}), errSignature},
		"the token of a service account": {
			good.withKubernetes(content{"validatingwebhookconfiguration": nil, "attestations": nil}), errConfiguration,
		},
		"the token of a pod": {
			good.withKubernetes(content{"validatingwebhookconfiguration": nil, "pod": map[string]any{"name": "tollgate"}}), errConfiguration,
		},
		"a token without what Kubernetes adds": {good.with(content{"kubernetes.io": nil}), errConfiguration},
		"bound to a configuration of the other kind": {
			good.withKubernetes(content{"validatingwebhookconfiguration": nil, "mutatingwebhookconfiguration": map[string]any{"name": "tollgate"}}),
			errConfiguration,
		},
		"bound to both": {
			good.withKubernetes(content{"mutatingwebhookconfiguration": map[string]any{"name": "tollgate"}}), errConfiguration,
		},
		"bound to another configuration": {
			good.withKubernetes(content{"validatingwebhookconfiguration": map[string]any{"name": "tollgate2"}}), errConfiguration,
		},
		"bound to a configuration without a name": {
			good.withKubernetes(content{"validatingwebhookconfiguration": map[string]any{}}), errConfiguration,
		},
		"the key in another case": {
			good.withKubernetes(content{"validatingwebhookconfiguration": nil, "ValidatingWebhookConfiguration": map[string]any{"name": "tollgate"}}),
			errConfiguration,
		},
		"no attestation": {good.withKubernetes(content{"attestations": nil}), errGroups},
		"an attestation of something else": {
			good.withKubernetes(content{"attestations": map[string]any{"other": []string{everyGroup}}}), errGroups,
		},
		"an attestation of no groups": {
			good.withKubernetes(content{"attestations": map[string]any{attestedGroups: []string{}}}), errGroups,
		},
		"an attestation of another type": {good.withKubernetes(content{"attestations": "*"}), errSignature},
	}
	by := newSigner(t, "one", jose.ES256)
	known := acceptingTokens(t, true, publishing(by))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := known.tokens.identify(t.Context(), tt.token.signedBy(t, by), endpoints()[validate])
			require.ErrorIs(t, err, tt.want)
			require.Empty(t, known.tokens.verified.entries)
		})
	}
}

func TestF06TokensThatTheIssuerDidNotSignAreRefused(t *testing.T) {
	by, stranger := newSigner(t, "one", jose.RS256), newSigner(t, "one", jose.RS256)
	payload, err := json.Marshal(forValidating())
	require.NoError(t, err)
	good := forValidating().signedBy(t, by)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	public, err := x509.MarshalPKIXPublicKey(by.key.Public())
	require.NoError(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	changed := encode(bytes.Replace(payload, []byte(`"tollgate"`), []byte(`"tollbooth"`), 1))

	tests := map[string]struct {
		token string
		want  error
	}{
		"a key of the same name that is another":   {sign(t, jose.RS256, stranger.key, "one", payload), errSignature},
		"alg none":                                 {encode([]byte(`{"alg":"none","kid":"one"}`)) + "." + parts[1] + ".", errMalformed},
		"alg none with a signature":                {encode([]byte(`{"alg":"none","kid":"one"}`)) + "." + parts[1] + "." + parts[2], errMalformed},
		"no alg":                                   {encode([]byte(`{"kid":"one"}`)) + "." + parts[1] + "." + parts[2], errMalformed},
		"HS256 with the public key as its secret":  {sign(t, jose.HS256, publicPEM, "one", payload), errMalformed},
		"HS256 with the DER of the public key":     {sign(t, jose.HS256, public, "one", payload), errMalformed},
		"an algorithm that API servers do not use": {sign(t, jose.PS256, by.key, "one", payload), errMalformed},
		"the algorithm of another key": {
			sign(t, jose.ES256, newSigner(t, "", jose.ES256).key, "one", payload), errAlgorithm,
		},
		"a key that is not published": {sign(t, jose.RS256, by.key, "two", payload), errUnknownKey},
		"no name of a key":            {sign(t, jose.RS256, by.key, "", payload), errNoKeyID},
		"a key that the token brings along": {
			tokenWithItsKey(t, stranger, payload), errSignature,
		},
		"what is signed was changed":      {parts[0] + "." + changed + "." + parts[2], errSignature},
		"the header was changed":          {encode([]byte(`{"kid":"one","alg":"RS256","typ":"JWT"}`)) + "." + parts[1] + "." + parts[2], errSignature},
		"the signature is cut":            {good[:len(good)-8], errSignature},
		"no signature":                    {parts[0] + "." + parts[1] + ".", errSignature},
		"two parts":                       {parts[0] + "." + parts[1], errMalformed},
		"four parts":                      {good + ".x", errMalformed},
		"five parts, as an encrypted one": {good + ".x.y", errMalformed},
		"nothing":                         {"", errMalformed},
		"text":                            {"let me in", errMalformed},
		"JSON":                            {`{"payload":"","signatures":[]}`, errMalformed},
		"points":                          {"..", errMalformed},
		"a critical header that is unknown": {
			encode([]byte(`{"alg":"RS256","kid":"one","crit":["exp2"],"exp2":1}`)) + "." + parts[1] + "." + parts[2], errSignature,
		},
		"as long as is looked at":         {strings.Repeat("a", maxToken), errMalformed},
		"longer":                          {strings.Repeat("a", maxToken+1), errTooLong},
		"a megabyte":                      {strings.Repeat("a.b", 1<<20/3), errTooLong},
		"a good token with a long header": {encode(fmt.Appendf(nil, `{"alg":"RS256","kid":"one","x":"%s"}`, strings.Repeat("x", maxToken))) + "." + parts[1] + "." + parts[2], errTooLong},
	}
	known := acceptingTokens(t, true, publishing(by))
	_, err = known.tokens.identify(t.Context(), good, endpoints()[validate])
	require.NoError(t, err)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := known.tokens.identify(t.Context(), tt.token, endpoints()[validate])
			require.ErrorIs(t, err, tt.want)
			require.Len(t, known.tokens.verified.entries, 1)
		})
	}
}

// tokenWithItsKey is signed by a key that stands in its own header.
func tokenWithItsKey(t *testing.T, by signer, payload []byte) string {
	t.Helper()
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: by.algorithm, Key: by.key},
		(&jose.SignerOptions{EmbedJWK: true}).WithHeader("kid", "one"))
	require.NoError(t, err)
	signed, err := with.Sign(payload)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

func TestATokenIsGoodForItsOwnEndpointOnlyThoughItIsRemembered(t *testing.T) {
	by := newSigner(t, "one", jose.ES256)
	known := acceptingTokens(t, true, publishing(by))
	token := forValidating().signedBy(t, by)
	_, err := known.tokens.identify(t.Context(), token, endpoints()[validate])
	require.NoError(t, err)
	_, err = known.tokens.identify(t.Context(), token, endpoints()[mutate])
	require.ErrorIs(t, err, errAudience)
	_, err = known.tokens.identify(t.Context(), token, Endpoint{})
	require.ErrorIs(t, err, errAudience)
}

func TestTheIssuerOfTheConfigurationCountsBeforeThePublishedOne(t *testing.T) {
	by := newSigner(t, "one", jose.ES256)
	o := optionsOf(true)
	o.Tokens = &Tokens{Published: publishing(by).Read, Endpoints: endpoints(), Issuer: "https://example.com"}
	known, err := NewCallers(o)
	require.NoError(t, err)
	_, err = known.tokens.identify(t.Context(), forValidating().signedBy(t, by), endpoints()[validate])
	require.ErrorIs(t, err, errIssuer)
	_, err = known.tokens.identify(t.Context(), forValidating().with(content{"iss": "https://example.com"}).signedBy(t, by), endpoints()[validate])
	require.NoError(t, err)
}

func TestWhatATokenCovers(t *testing.T) {
	tests := map[string]struct {
		groups []string
		group  string
		want   bool
	}{
		"all groups cover the core group":       {[]string{"*"}, "", true},
		"all groups cover any":                  {[]string{"*"}, "resource.k8s.io", true},
		"a group covers itself":                 {[]string{"apps", "resource.k8s.io"}, "resource.k8s.io", true},
		"a group covers no other":               {[]string{"resource.k8s.io"}, "apps", false},
		"a group does not cover the core":       {[]string{"resource.k8s.io"}, "", false},
		"an empty name does not cover the core": {[]string{""}, "", false},
		"a pattern covers nothing":              {[]string{"*.k8s.io"}, "resource.k8s.io", false},
		"no groups cover nothing":               {nil, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, grant{groups: tt.groups}.covers(tt.group))
		})
	}
}
