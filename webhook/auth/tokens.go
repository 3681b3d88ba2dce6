package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/utils/clock"
)

// Tokens say which tokens are accepted.
type Tokens struct {
	// Issuer issues them. If it is empty, it is the one that is published with the keys.
	Issuer string
	// Published reads the keys of the issuer.
	Published Source
	// Endpoints say which tokens are for an endpoint, by its name.
	Endpoints map[string]Endpoint
}

// Endpoint holds the claims that a token must have at an endpoint.
type Endpoint struct {
	// Audience is the URL of the endpoint, as the API server makes it up from its webhook
	// configuration: the url there, or https://<service>.<namespace>.svc:<port>/<path>.
	Audience string
	// Kind and Name are those of its webhook configuration.
	Kind Kind
	Name string
}

// Kind is the kind of a webhook configuration.
type Kind string

// The kinds of webhook configurations.
const (
	Mutating   Kind = "MutatingWebhookConfiguration"
	Validating Kind = "ValidatingWebhookConfiguration"
)

const (
	// maxToken bounds a token in bytes; those of an API server have about 1,000.
	maxToken = 8 << 10
	// maxLife is how long a token for a webhook lives at most, see
	// pkg/registry/core/serviceaccount/storage/token.go.
	maxLife = 10 * time.Minute
	// leeway is by how much clocks may differ: there may be several API servers, and
	// Tollgate follows one of them, in whole seconds.
	leeway = 10 * time.Second
)

// attestedGroups is the attestation that names the API groups of reviews.
const attestedGroups = "admissionReviewAPIGroups"

// algorithms are those that an API server signs with (pkg/serviceaccount/jwt.go).
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}
}

// claims are those of a token for a webhook (pkg/serviceaccount/claims.go).
type claims struct {
	Kubernetes struct {
		Validating   *bound              `json:"validatingwebhookconfiguration"`
		Mutating     *bound              `json:"mutatingwebhookconfiguration"`
		Attestations map[string][]string `json:"attestations"`
	} `json:"kubernetes.io"`
}

type bound struct {
	Name string `json:"name"`
}

var (
	errTooLong       = errors.New("the token is too long")
	errMalformed     = errors.New("the token is not a signed JWT, or not by an algorithm that API servers sign with")
	errNoKeyID       = errors.New("the token does not say which key signed it")
	errAlgorithm     = errors.New("the token is signed by another algorithm than its key is for")
	errSignature     = errors.New("the signature of the token does not verify")
	errIssuer        = errors.New("the token is of another issuer")
	errAudience      = errors.New("the token is for another audience")
	errLife          = errors.New("the token does not say how long it lives, or lives longer than ten minutes")
	errNotYet        = errors.New("the token is not valid yet")
	errExpired       = errors.New("the token has expired")
	errConfiguration = errors.New("the token is not bound to this webhook configuration")
	errGroups        = errors.New("the token names no API groups")
)

// tokenContext is the trust that verified a token.
type tokenContext struct {
	keys *keySet
	to   Endpoint
}

// tokens verifies tokens.
type tokens struct {
	clock    clock.PassiveClock
	keys     *keys
	verified verified[tokenContext]
}

func newTokens(o CallerOptions) *tokens {
	return &tokens{clock: o.ServerClock, keys: newKeys(o)}
}

// tokenOf returns the token that r bears. Several headers are no token, and refused.
func tokenOf(r *http.Request) (string, bool) {
	headers := r.Header["Authorization"]
	if len(headers) != 1 {
		return "", len(headers) > 0
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

func (t *tokens) identify(ctx context.Context, token string, to Endpoint) (grant, error) {
	if len(token) > maxToken {
		return grant{}, errTooLong
	}
	shown := digest(sha256.Sum256([]byte(token)))
	set, old := t.keys.current()
	// A token that is remembered is good by keys that still count.
	if found, ok := t.verified.get(shown, tokenContext{set, to}, t.clock.Now()); ok && (!old || t.keys.refreshed(ctx) == set) {
		return found, nil
	}
	signed, err := jwt.ParseSigned(token, algorithms())
	if err != nil || len(signed.Headers) != 1 {
		return grant{}, errMalformed
	}
	header := signed.Headers[0]
	if header.KeyID == "" {
		return grant{}, errNoKeyID
	}
	set, key, err := t.keys.find(ctx, header.KeyID)
	if err != nil {
		return grant{}, err
	}
	if key.Algorithm != header.Algorithm {
		return grant{}, errAlgorithm
	}
	public, private := &jwt.Claims{}, &claims{}
	if err := signed.Claims(key.Key, public, private); err != nil {
		return grant{}, errSignature
	}
	found, err := grantOf(public, private, set.issuer, to, t.clock.Now())
	if err != nil {
		return grant{}, err
	}
	t.verified.put(shown, tokenContext{set, to}, found)
	return found, nil
}

// grantOf returns the grant of a token whose signature is good. It is pure.
func grantOf(public *jwt.Claims, private *claims, issuer string, to Endpoint, now time.Time) (grant, error) {
	if public.Issuer != issuer || issuer == "" {
		return grant{}, errIssuer
	}
	// A token for a webhook has one audience.
	if len(public.Audience) != 1 || public.Audience[0] != to.Audience || to.Audience == "" {
		return grant{}, errAudience
	}
	until, err := validUntil(public, now)
	if err != nil {
		return grant{}, err
	}
	// It is bound to the configuration of the endpoint, and to none of the other kind.
	is, other := private.Kubernetes.Validating, private.Kubernetes.Mutating
	if to.Kind == Mutating {
		is, other = other, is
	}
	if is == nil || other != nil || is.Name != to.Name || to.Name == "" {
		return grant{}, errConfiguration
	}
	groups := private.Kubernetes.Attestations[attestedGroups]
	if len(groups) == 0 {
		return grant{}, errGroups
	}
	return grant{until: until, groups: groups}, nil
}

// validUntil returns the time until which a token is valid; an error if it is not valid now.
func validUntil(public *jwt.Claims, now time.Time) (time.Time, error) {
	if public.IssuedAt == nil || public.Expiry == nil || public.Expiry.Time().Sub(public.IssuedAt.Time()) > maxLife {
		return time.Time{}, errLife
	}
	ahead, until := now.Add(leeway), public.Expiry.Time().Add(leeway)
	if public.IssuedAt.Time().After(ahead) || public.NotBefore.Time().After(ahead) {
		return time.Time{}, errNotYet
	}
	if !now.Before(until) {
		return time.Time{}, errExpired
	}
	return until, nil
}
