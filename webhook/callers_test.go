package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

const audience = "https://tollgate.tollgate-system.svc:443/validate"

// mint signs a token for the validating endpoint and for reviews of an API group.
func mint(t *testing.T, key *ecdsa.PrivateKey, group string) string {
	t.Helper()
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	require.NoError(t, err)
	signed, err := with.Sign(marshal(t, map[string]any{
		"iss": "https://issuer", "aud": []string{audience}, "iat": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix(),
		"kubernetes.io": map[string]any{
			"validatingwebhookconfiguration": map[string]any{"name": "tollgate"},
			"attestations":                   map[string]any{"admissionReviewAPIGroups": []string{group}},
		},
	}))
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

// askingForTokens are options that ask callers for tokens of a key.
func askingForTokens(t *testing.T, required bool) (Options, *ecdsa.PrivateKey) {
	t.Helper()
	return askingForSlowTokens(t, required, 0)
}

// askingForSlowTokens are such options where it takes a while to read the key.
func askingForSlowTokens(t *testing.T, required bool, takes time.Duration) (Options, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	published, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	require.NoError(t, err)
	known, err := auth.NewCallers(auth.CallerOptions{
		Required: required, Clock: clock.RealClock{}, ServerClock: clock.RealClock{}, Metrics: auth.NewCallerMetrics(prometheus.NewPedanticRegistry()),
		Tokens: &auth.Tokens{
			Published: func(context.Context) (auth.Published, error) {
				time.Sleep(takes)
				return auth.Published{Issuer: "https://issuer", Keys: published}, nil
			},
			Endpoints: map[string]auth.Endpoint{
				EndpointValidate: {Audience: audience, Kind: auth.Validating, Name: "tollgate"},
			},
		},
	})
	require.NoError(t, err)
	options := testOptions()
	options.Callers = known
	return options, key
}

// answerTo returns everything that is answered, but for the date.
func answerTo(t *testing.T, method, url, authorization string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	response.Header.Del("Date")
	var header bytes.Buffer
	require.NoError(t, response.Header.Write(&header))
	return response.StatusCode, header.String() + string(content)
}

func TestF06WhoIsNotKnownIsToldTheSameWhateverItSends(t *testing.T) {
	options, key := askingForTokens(t, true)
	var judged atomic.Int64
	url := serveHandler(t, options, handlers.Handler(func(context.Context, *review.Request) (handlers.Result, error) {
		judged.Add(1)
		return handlers.Result{Decision: policy.Decide([]policy.Finding{{Problem: "the taint dedicated is granted to the namespace banana only"}})}, nil
	}))
	review := string(marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	status, want := answerTo(t, http.MethodPost, url, "", strings.NewReader(review))
	require.Equal(t, http.StatusUnauthorized, status)
	require.True(t, strings.HasSuffix(want, "unauthorized\n"))
	require.Contains(t, want, "Www-Authenticate: Bearer\r\n")

	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tests := map[string]struct{ method, authorization, body string }{
		"no token":                    {http.MethodPost, "", review},
		"a token of a stranger":       {http.MethodPost, "Bearer " + mint(t, stranger, "*"), review},
		"a token for another group":   {http.MethodPost, "Bearer " + mint(t, key, "apps"), review},
		"what is no token":            {http.MethodPost, "Bearer x", review},
		"a body that is no review":    {http.MethodPost, "", "{}"},
		"a body that is no JSON":      {http.MethodPost, "", "{"},
		"an empty body":               {http.MethodPost, "", ""},
		"a resource that none judges": {http.MethodPost, "", strings.ReplaceAll(review, `"pods"`, `"other"`)},
		"another method":              {http.MethodPut, "", review},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, got := answerTo(t, tt.method, url, tt.authorization, strings.NewReader(tt.body))
			require.Equal(t, http.StatusUnauthorized, status)
			require.Equal(t, want, got)
		})
	}
	require.Zero(t, judged.Load())
	require.InDelta(t, len(tests)+1, testutil.ToFloat64(options.Metrics.refusals.WithLabelValues("validate", "401")), 0)

	status, got := answerTo(t, http.MethodPost, url, "Bearer "+mint(t, key, "*"), strings.NewReader(review))
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, got, "banana")
	require.Equal(t, int64(1), judged.Load())
}

func TestF06NothingIsReadOfTheBodyOfWhoIsNotKnown(t *testing.T) {
	options, _ := askingForTokens(t, true)
	body := &counting{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", body)
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	newEndpoint(EndpointValidate, options, map[handlers.Resource]handlers.Handler{pods: allowAll}).ServeHTTP(answer, r)
	require.Equal(t, http.StatusUnauthorized, answer.Code)
	require.Zero(t, body.read.Load())
}

func TestWhoIsNotKnownIsAnsweredWhereThatIsOptional(t *testing.T) {
	options, key := askingForTokens(t, false)
	url := serveHandler(t, options, allowAll)
	review := string(marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	_, want := answerTo(t, http.MethodPost, serveHandler(t, testOptions(), allowAll), "", strings.NewReader(review))
	for _, authorization := range []string{"", "Bearer x", "Bearer " + mint(t, key, "apps"), "Bearer " + mint(t, key, "*")} {
		status, got := answerTo(t, http.MethodPost, url, authorization, strings.NewReader(review))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, want, got)
	}
}

func TestF07TheTimeUntilACallerIsKnownIsPartOfTheBudgetAndOfTheDuration(t *testing.T) {
	const takes = 300 * time.Millisecond
	for name, tt := range map[string]struct {
		required bool
		budget   time.Duration
		status   int
		lasts    time.Duration
	}{
		"keys that come in time":               {true, time.Second, http.StatusOK, takes},
		"keys that come too late":              {true, takes - 100*time.Millisecond, http.StatusUnauthorized, takes - 100*time.Millisecond},
		"keys that nobody has to wait for":     {false, time.Second, http.StatusOK, 0},
		"such keys, with a budget that is low": {false, takes / 2, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options, key := askingForSlowTokens(t, tt.required, takes)
				options.Budget = tt.budget
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate",
					bytes.NewReader(marshal(t, podReview(t, admissionv1.Create, simplePod, ""))))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+mint(t, key, "*"))
				answer, start := httptest.NewRecorder(), time.Now()
				newEndpoint(EndpointValidate, options, map[handlers.Resource]handlers.Handler{pods: allowAll}).ServeHTTP(answer, r)
				require.Equal(t, tt.status, answer.Code)
				require.Equal(t, tt.lasts, time.Since(start))
				if tt.status == http.StatusOK {
					require.InDelta(t, tt.lasts.Seconds(), took(t, options.Metrics), 1e-9)
				}
				time.Sleep(takes) // The reading under way ends.
			})
		})
	}
}

// took returns the seconds of all reviews of pods that were allowed.
func took(t *testing.T, m *Metrics) float64 {
	t.Helper()
	observed, ok := m.duration.WithLabelValues("validate", "pods", "allowed").(prometheus.Histogram)
	require.True(t, ok)
	var written dto.Metric
	require.NoError(t, observed.Write(&written))
	return written.GetHistogram().GetSampleSum()
}

// A server reads what is left of a body before it reads the next request.
func TestA04ABodyThatDoesNotComeAfterARefusalDoesNotHoldItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options, _ := askingForTokens(t, true)
		client := pipeTo(t, newEndpoint(EndpointValidate, options, map[handlers.Resource]handlers.Handler{pods: allowAll}))
		start := time.Now()
		go func() {
			_, _ = io.WriteString(client, "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		}()
		answer, err := io.ReadAll(client)
		require.NoError(t, err, "the connection is closed")
		require.Contains(t, string(answer), "401 Unauthorized")
		require.LessOrEqual(t, time.Since(start), bodyTimeout)
	})
}

// pipeTo returns the client's end of a connection to a server, which ends with the test.
func pipeTo(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	client, served := net.Pipe()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	listener := &oneConnection{served: make(chan net.Conn, 1)}
	listener.served <- served
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return client
}

// oneConnection is a listener that is connected to once.
type oneConnection struct {
	served chan net.Conn
	once   sync.Once
}

func (l *oneConnection) Accept() (net.Conn, error) {
	if connection, ok := <-l.served; ok {
		return connection, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConnection) Close() error {
	l.once.Do(func() { close(l.served) })
	return nil
}

func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

func TestE05AReviewOfAStrangerIsUnproven(t *testing.T) {
	options, key := askingForTokens(t, false)
	known := "Bearer " + mint(t, key, "*")
	require.Eventually(t, func() bool { // Where that is optional, nobody waits for the keys of tokens.
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", http.NoBody)
		r.Header.Set("Authorization", known)
		visit, _ := options.Callers.Identify(r, EndpointValidate)
		return visit.Proven("")
	}, time.Minute, time.Millisecond)
	var unproven bool
	look := func(ctx context.Context, req *review.Request) (handlers.Result, error) {
		unproven = req.Unproven
		return allowAll(ctx, req)
	}
	endpoint := newEndpoint(EndpointValidate, options, map[handlers.Resource]handlers.Handler{pods: look, {Name: "nodes"}: look})
	for _, tt := range []struct {
		resource, authorization string
		unproven                bool
	}{
		{"nodes", "", true},
		{"nodes", "Bearer x", true},
		{"nodes", known, false},
		{"pods", "", false},
	} {
		review := podReview(t, admissionv1.Create, `{}`, "")
		review.Request.Resource.Resource = tt.resource
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", bytes.NewReader(marshal(t, review)))
		r.Header.Set("Content-Type", "application/json")
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		answer := httptest.NewRecorder()
		endpoint.ServeHTTP(answer, r)
		require.Equal(t, http.StatusOK, answer.Code, answer.Body)
		require.Equal(t, tt.unproven, unproven, "%s by %q", tt.resource, tt.authorization)
	}
}
