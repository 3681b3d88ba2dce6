package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// now is when the API server of the tests lives.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const issuerURL = "https://kubernetes.default.svc"

// The endpoints of the tests.
const (
	mutate   = "mutate"
	validate = "validate"
)

func endpoints() map[string]Endpoint {
	return map[string]Endpoint{
		mutate:   {Audience: "https://tollgate.tollgate-system.svc:443/mutate", Kind: Mutating, Name: "tollgate"},
		validate: {Audience: "https://tollgate.tollgate-system.svc:443/validate", Kind: Validating, Name: "tollgate"},
	}
}

// signer is a key of an API server.
type signer struct {
	id        string
	algorithm jose.SignatureAlgorithm
	key       crypto.Signer
}

func newSigner(tb testing.TB, id string, algorithm jose.SignatureAlgorithm) signer {
	tb.Helper()
	curves := map[jose.SignatureAlgorithm]elliptic.Curve{
		jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
	}
	if curve, ok := curves[algorithm]; ok {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(tb, err)
		return signer{id, algorithm, key}
	}
	key, err := rsa.GenerateKey(rand.Reader, smallestRSA)
	require.NoError(tb, err)
	return signer{id, algorithm, key}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(s.algorithm), Use: "sig"}
}

// sign signs any payload, with any algorithm and key.
func sign(tb testing.TB, algorithm jose.SignatureAlgorithm, key any, id string, payload []byte) string {
	tb.Helper()
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	require.NoError(tb, err)
	signed, err := with.Sign(payload)
	require.NoError(tb, err)
	token, err := signed.CompactSerialize()
	require.NoError(tb, err)
	return token
}

// content is what a token says.
type content map[string]any

// forValidating is what an API server writes into a token for the validating webhook.
func forValidating() content {
	return content{
		"iss": issuerURL,
		"sub": "system:serviceaccount:kube-system:webhooks",
		"aud": []string{endpoints()[validate].Audience},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(maxLife).Unix(),
		"kubernetes.io": map[string]any{
			"namespace":                      "kube-system",
			"serviceaccount":                 map[string]any{"name": "webhooks", "uid": "1"},
			"validatingwebhookconfiguration": map[string]any{"name": "tollgate", "uid": "2"},
			"attestations":                   map[string]any{attestedGroups: []string{everyGroup}},
		},
	}
}

// with returns the content with some of it changed, and without what is changed to nil.
func (c content) with(changes content) content {
	changed := maps.Clone(c)
	maps.Copy(changed, changes)
	maps.DeleteFunc(changed, func(_ string, value any) bool { return value == nil })
	return changed
}

// withKubernetes changes what Kubernetes adds to a token.
func (c content) withKubernetes(changes content) content {
	private, _ := c["kubernetes.io"].(map[string]any)
	return c.with(content{"kubernetes.io": map[string]any(content(private).with(changes))})
}

func (c content) signedBy(tb testing.TB, s signer) string {
	tb.Helper()
	payload, err := json.Marshal(c)
	require.NoError(tb, err)
	return sign(tb, s.algorithm, s.key, s.id, payload)
}

// publisher publishes keys, and counts how often it is asked.
type publisher struct {
	mu     sync.Mutex // guards what is below
	keys   []jose.JSONWebKey
	fault  error
	takes  time.Duration
	asked  int
	issuer string
}

func publishing(signers ...signer) *publisher {
	p := &publisher{issuer: issuerURL}
	p.publish(signers...)
	return p
}

func (p *publisher) publish(signers ...signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = nil
	for _, s := range signers {
		p.keys = append(p.keys, s.public())
	}
}

func (p *publisher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
}

func (p *publisher) take(long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes = long
}

func (p *publisher) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *publisher) Read(ctx context.Context) (Published, error) {
	p.mu.Lock()
	p.asked++
	takes := p.takes
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return Published{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		return Published{}, p.fault
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: p.keys})
	return Published{Issuer: p.issuer, Keys: keys}, err
}

// optionsOf are options at a time that stands still.
func optionsOf(required bool) CallerOptions {
	return CallerOptions{
		Required:    required,
		Clock:       clock.RealClock{},
		ServerClock: clocktesting.NewFakePassiveClock(now),
		Metrics:     NewCallerMetrics(prometheus.NewPedanticRegistry()),
	}
}

func acceptingTokens(tb testing.TB, required bool, from *publisher) *Callers {
	tb.Helper()
	o := optionsOf(required)
	o.Tokens = &Tokens{Published: from.Read, Endpoints: endpoints()}
	c, err := NewCallers(o)
	require.NoError(tb, err)
	return c
}

// ca is an authority of client certificates.
type ca struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newCA(tb testing.TB, name string) ca {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(tb, err)
	certificate, err := x509.ParseCertificate(raw)
	require.NoError(tb, err)
	return ca{certificate, key}
}

func (a ca) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// issue issues a certificate for a client; edit may change it.
func (a ca) issue(tb testing.TB, name pkix.Name, edit func(*x509.Certificate)) (*x509.Certificate, crypto.Signer) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: name,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(tb, err)
	certificate, err := x509.ParseCertificate(raw)
	require.NoError(tb, err)
	return certificate, key
}

func writeFile(tb testing.TB, content []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ca.crt")
	require.NoError(tb, os.WriteFile(path, content, 0o600))
	return path
}

// callerLines are what was logged.
type callerLines struct {
	mu   sync.Mutex // guards text
	text []string
}

func (l *callerLines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{})
}

func (l *callerLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.text...)
}

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
