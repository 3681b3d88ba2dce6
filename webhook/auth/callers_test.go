package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// scene is what callers may show, and who knows it.
type scene struct {
	known *Callers
	right *x509.Certificate
	// wrong has the right authority and another name.
	wrong *x509.Certificate
	// all and resources are tokens for all groups, and for one.
	all, resources string
}

func newScene(tb testing.TB, required bool) scene {
	tb.Helper()
	authority, by := newCA(tb, "right"), newSigner(tb, "one", jose.ES256)
	o := optionsOf(required)
	o.Certificates = &Certificates{CAFile: writeFile(tb, authority.pem()), CommonNames: []string{"kube-apiserver"}}
	o.Tokens = &Tokens{Published: publishing(by).Read, Endpoints: endpoints()}
	known, err := NewCallers(o)
	require.NoError(tb, err)
	known.tokens.keys.read(tb.Context())
	s := scene{known: known, all: forValidating().signedBy(tb, by)}
	s.resources = forValidating().withKubernetes(content{"attestations": map[string]any{attestedGroups: []string{"resource.k8s.io"}}}).signedBy(tb, by)
	s.right, _ = authority.issue(tb, pkix.Name{CommonName: "kube-apiserver"}, nil)
	s.wrong, _ = authority.issue(tb, pkix.Name{CommonName: "system:node:n-1"}, nil)
	return s
}

// showing returns a request of someone who shows a certificate, if it is not nil, and
// headers.
func showing(tb testing.TB, certificate *x509.Certificate, authorization ...string) *http.Request {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/validate", nil)
	if certificate != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	}
	for _, header := range authorization {
		r.Header.Add("Authorization", header)
	}
	return r
}

func TestF06F08WhoMaySendReviews(t *testing.T) {
	s := newScene(t, true)
	tests := map[string]struct {
		request *http.Request
		group   string
		way     way
		known   bool
	}{
		"nothing is shown":                          {showing(t, nil), "", none, false},
		"a certificate":                             {showing(t, s.right), "", byCertificate, true},
		"a certificate, of another group":           {showing(t, s.right), "apps", byCertificate, true},
		"a certificate of another name":             {showing(t, s.wrong), "", byCertificate, false},
		"a token":                                   {showing(t, nil, "Bearer "+s.all), "", byToken, true},
		"a token in another spelling":               {showing(t, nil, "bearer "+s.all), "", byToken, true},
		"a token for one group":                     {showing(t, nil, "Bearer "+s.resources), "resource.k8s.io", byToken, true},
		"a token for one group, of another":         {showing(t, nil, "Bearer "+s.resources), "apps", byToken, false},
		"a token for one group, of the core":        {showing(t, nil, "Bearer "+s.resources), "", byToken, false},
		"a certificate and a token":                 {showing(t, s.right, "Bearer "+s.all), "", byCertificate, true},
		"a certificate and a token that is none":    {showing(t, s.right, "Bearer x"), "", byCertificate, true},
		"another certificate and a token":           {showing(t, s.wrong, "Bearer "+s.all), "", byToken, true},
		"another certificate and no token":          {showing(t, s.wrong, "Bearer x"), "", byToken, false},
		"no token":                                  {showing(t, nil, "Bearer"), "", byToken, false},
		"a token without its scheme":                {showing(t, nil, s.all), "", none, false},
		"a password":                                {showing(t, nil, "Basic "+base64.StdEncoding.EncodeToString([]byte("a:b"))), "", none, false},
		"two tokens":                                {showing(t, nil, "Bearer "+s.all, "Bearer "+s.all), "", byToken, false},
		"a megabyte of a token":                     {showing(t, nil, "Bearer "+strings.Repeat("x", 1<<20)), "", byToken, false},
		"a token with a space before it":            {showing(t, nil, "Bearer  "+s.all), "", byToken, false},
		"a token with something behind it":          {showing(t, nil, "Bearer "+s.all+" x"), "", byToken, false},
		"a token with what no token has, behind it": {showing(t, nil, "Bearer "+s.all+"!"), "", byToken, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			metrics := s.known.options.Metrics
			before := metrics.total(t)
			visit, known := s.known.Identify(tt.request, validate)
			if known {
				known = visit.MaySend(t.Context(), tt.group)
			}
			require.Equal(t, tt.known, known)
			came := refused
			if tt.known {
				came = accepted
			}
			after := metrics.total(t)
			require.InDelta(t, 1, after[tt.way][came]-before[tt.way][came], 0)
			require.InDelta(t, 1, sum(after)-sum(before), 0, "every caller is counted once")
		})
	}
}

func TestNobodyIsRefusedWhereShowingIsOptionalAndThatIsSaidOnce(t *testing.T) {
	s := newScene(t, false)
	logged := &callerLines{}
	ctx := logr.NewContext(t.Context(), logged.logger())
	requests := []*http.Request{
		showing(t, nil), showing(t, s.wrong), showing(t, nil, "Bearer x"), showing(t, nil, "Bearer "+s.resources), showing(t, nil, "Bearer "+s.all),
	}
	for range 3 {
		for _, r := range requests {
			visit, known := s.known.Identify(r, validate)
			require.True(t, known)
			require.True(t, visit.MaySend(ctx, ""))
		}
	}
	got := s.known.options.Metrics.total(t)
	require.Equal(t, map[way]map[outcome]float64{
		none:          {answered: 3},
		byCertificate: {answered: 3},
		byToken:       {answered: 6, accepted: 3},
	}, got)
	require.Len(t, logged.all(), 1, "%v", logged.all())
	require.Contains(t, logged.all()[0], errNothingShown.Error())
}

func TestWithoutCallersEverybodyMaySend(t *testing.T) {
	var known *Callers
	visit, ok := known.Identify(showing(t, nil), validate)
	require.True(t, ok)
	require.True(t, visit.MaySend(t.Context(), "apps"))
}

func TestOnlyTheWaysThatAreSwitchedOnCount(t *testing.T) {
	s := newScene(t, true)
	s.known.tokens = nil
	_, ok := s.known.Identify(showing(t, nil, "Bearer "+s.all), validate)
	require.False(t, ok)
	_, ok = s.known.Identify(showing(t, s.right), validate)
	require.True(t, ok)

	s = newScene(t, true)
	s.known.certificates = nil
	_, ok = s.known.Identify(showing(t, s.right), validate)
	require.False(t, ok)
	_, ok = s.known.Identify(showing(t, nil, "Bearer "+s.all), "an endpoint that nobody names")
	require.False(t, ok)
}

func TestClientsAreAskedForACertificateOnlyWhereOneIsAccepted(t *testing.T) {
	s := newScene(t, true)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	s.known.TLSConfig(config)
	require.Equal(t, tls.RequestClientCert, config.ClientAuth)
	s.known.certificates = nil
	config = &tls.Config{MinVersion: tls.VersionTLS12}
	s.known.TLSConfig(config)
	require.Equal(t, tls.NoClientCert, config.ClientAuth)
}

// The bubble's clock stands still, however long a thousand refusals take.
func TestRefusalsAreLoggedWithTheirReasonAndDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, true)
		logged := &callerLines{}
		ctx := logr.NewContext(t.Context(), logged.logger())
		for range 1000 {
			_, ok := s.known.Identify(showing(t, s.wrong).WithContext(ctx), validate)
			require.False(t, ok)
		}
		require.Len(t, logged.all(), 10)
		require.Contains(t, logged.all()[0], errOtherName.Error())
		require.Contains(t, logged.all()[0], "192.0.2.1")
	})
	require.LessOrEqual(t, len(limit(errors.New(strings.Repeat("é", 1000)))), 300)
}

func TestF07KeysAreReadBeforeTheFirstTokenIfAnybodyMayBeRefused(t *testing.T) {
	for required, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			from := publishing(newSigner(t, "one", jose.ES256))
			known := acceptingTokens(t, required, from)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			require.NoError(t, known.Start(ctx))
			require.Equal(t, want, from.times())
			set, _ := known.tokens.keys.current()
			require.Equal(t, required, set != nil)
		})
	}
}

func TestCallersEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := acceptingTokens(t, true, publishing())
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.NoError(t, known.Start(ctx))
		require.False(t, known.NeedLeaderElection())
	})
}

// total returns what was counted, by way and outcome, without what was not.
func (m *CallerMetrics) total(tb testing.TB) map[way]map[outcome]float64 {
	tb.Helper()
	counted := map[way]map[outcome]float64{}
	for _, by := range []way{none, byCertificate, byToken} {
		counted[by] = map[outcome]float64{}
		for _, came := range []outcome{accepted, answered, refused} {
			if n := testutil.ToFloat64(m.callers.WithLabelValues(string(by), string(came))); n > 0 {
				counted[by][came] = n
			}
		}
	}
	return counted
}

func sum(counted map[way]map[outcome]float64) float64 {
	var all float64
	for _, of := range counted {
		for _, n := range of {
			all += n
		}
	}
	return all
}
