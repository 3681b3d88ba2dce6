package faultproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	patienceOfTests = 30 * time.Second
	pods            = "/api/v1/namespaces/ns/pods"
)

// backend stands for the API server. It counts what arrives, and its watches deliver
// what is said.
type backend struct {
	server  *httptest.Server
	arrived atomic.Int32
	say     chan string

	mutex sync.Mutex
	last  *http.Request
	body  string
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{say: make(chan string, 16)}
	b.server = httptest.NewUnstartedServer(b)
	b.server.EnableHTTP2 = true
	b.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.arrived.Add(1)
	body, _ := io.ReadAll(r.Body)
	b.mutex.Lock()
	b.last, b.body = r, string(body)
	b.mutex.Unlock()
	w.Header().Set("Audit-Id", "audit")
	if r.URL.Query().Get("watch") == "" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case line := <-b.say:
			if line == "" {
				return
			}
			_, _ = io.WriteString(w, line+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// stage is a proxy before a backend, and a client of it.
type stage struct {
	*backend
	*Proxy

	client *http.Client
	// giveUp ends the requests of the client.
	giveUp context.CancelFunc
	asking context.Context //nolint:containedctx // What giveUp ends.
	mutex  sync.Mutex      // guards what follows
	writes []Write
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{backend: newBackend(t)}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server().Certificate().Raw})
	p, err := Start(Options{
		Client:  &rest.Config{Host: s.server().URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}},
		Replica: "a", Seed: 1,
		Record: func(w Write) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			s.writes = append(s.writes, w)
		},
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s.Proxy = p
	transport, err := rest.TransportFor(s.config())
	require.NoError(t, err)
	s.client = &http.Client{Transport: transport}
	s.asking, s.giveUp = context.WithTimeout(t.Context(), patienceOfTests)
	t.Cleanup(s.giveUp)
	return s
}

// waitStruck returns when the first fault has hit a request.
func (s *stage) waitStruck() {
	for {
		s.Proxy.mutex.Lock()
		struck := s.faults[0].left < 0
		s.Proxy.mutex.Unlock()
		if struck || s.asking.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *stage) server() *httptest.Server { return s.backend.server }

func (s *stage) config() *rest.Config {
	return &rest.Config{Host: s.URL(), BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: s.CA()}, QPS: -1}
}

// answer is what the client got.
type answer struct {
	StatusCode int
	Header     http.Header
	body       string
	// broken is why there is no more of the body.
	broken error
}

// do asks, and reads the answer to its end.
func (s *stage) do(t *testing.T, method, path string) (answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(s.asking, method, s.URL()+path, strings.NewReader("body"))
	require.NoError(t, err)
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, broken := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), broken}, nil
}

// recorded waits for as many writes: a record comes after the answer.
func (s *stage) recorded(t *testing.T, want int) []Write {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return len(s.writes) == want
	}, patienceOfTests, time.Millisecond)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.writes
}

func TestARequestPassesAsItIsWithTheCredentialsOfTheClient(t *testing.T) {
	s := newStage(t)
	response, err := s.do(t, http.MethodGet, pods+"/p?a=b")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, response.broken)
	require.Contains(t, response.body, `"kind":"Pod"`)
	require.Equal(t, "Bearer token", s.last.Header.Get("Authorization"))
	require.Equal(t, pods+"/p?a=b", s.last.URL.RequestURI())
	require.Equal(t, "body", s.body)
	require.Empty(t, s.writes, "a read is not recorded")
}

func TestARequestGoesWithTheCredentialsThatItBringsOrElseWithTheClients(t *testing.T) {
	b := newBackend(t)
	own := b.server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	p, err := Start(Options{Client: &rest.Config{Host: b.server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: block("CERTIFICATE", own.Certificate[0]), CertData: block("CERTIFICATE", own.Certificate[0]), KeyData: block("PRIVATE KEY", key),
	}}})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	for name, test := range map[string]struct {
		token        string
		certificates int
	}{
		"none":    {"", 1},
		"a token": {"other", 0},
	} {
		t.Run(name, func(t *testing.T) {
			transport, err := rest.TransportFor(&rest.Config{Host: p.URL(), BearerToken: test.token, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA()}})
			require.NoError(t, err)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+pods, nil)
			require.NoError(t, err)
			response, err := transport.RoundTrip(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Len(t, b.last.TLS.PeerCertificates, test.certificates)
		})
	}
}

func TestWritesAreRecordedWithWhatBecameOfThem(t *testing.T) {
	tests := map[string]struct {
		fault                       Fault
		status, given               int
		forwarded, answered, arrive bool
		err                         bool
	}{
		"without a fault":             {status: 200, given: 200, forwarded: true, answered: true, arrive: true},
		"the request is lost":         {fault: Fault{Lose: LoseRequest}, err: true},
		"I04 the answer is lost":      {fault: Fault{Lose: LoseAnswer}, status: 200, forwarded: true, answered: true, arrive: true, err: true},
		"another status is answered":  {fault: Fault{Status: 503}, given: 503},
		"the client gives up waiting": {fault: Fault{Lose: LoseRequest, Silent: true}, err: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.Inject(test.fault)
			if test.fault.Silent {
				go func() {
					s.waitStruck()
					s.giveUp()
				}()
			}
			_, err := s.do(t, http.MethodDelete, pods+"/p?x=y")
			require.Equal(t, test.err, err != nil, "%v", err)
			w := s.recorded(t, 1)[0]
			require.Equal(t, test.status, w.Status)
			require.Equal(t, test.given, w.Given)
			require.Equal(t, test.forwarded, !w.Forwarded.IsZero())
			require.Equal(t, test.answered, !w.Answered.IsZero())
			require.Equal(t, test.arrive, s.arrived.Load() > 0)
			require.False(t, w.Sent.IsZero())
			require.Equal(t, Write{
				Replica: "a", Method: http.MethodDelete, Path: pods + "/p?x=y", Verb: "delete", Resource: "pods",
				Namespace: "ns", Name: "p", Body: []byte("body"),
			}, Write{
				Replica: w.Replica, Method: w.Method, Path: w.Path, Verb: w.Verb, Resource: w.Resource,
				Namespace: w.Namespace, Name: w.Name, Body: w.Body,
			})
		})
	}
}

func TestASubresourceIsNamedWithItsResource(t *testing.T) {
	s := newStage(t)
	s.Inject(Fault{Match: Match{Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}, Status: 429, RetryAfter: 7 * time.Second})
	client, err := kubernetes.NewForConfig(s.config())
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("ns").Patch(t.Context(), "p", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	response, err := s.do(t, http.MethodPost, pods+"/p/eviction")
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
	require.Equal(t, "7", response.Header.Get("Retry-After"))
	var subresources []string
	for _, w := range s.recorded(t, 2) { // in any order: the client had its answer before
		subresources = append(subresources, w.Subresource)
	}
	require.ElementsMatch(t, []string{"status", "eviction"}, subresources)
}

func TestAnInjectedStatusIsAnErrorOfTheAPI(t *testing.T) {
	tests := map[string]struct {
		status int
		is     func(error) bool
	}{
		"I01 429": {http.StatusTooManyRequests, apierrors.IsTooManyRequests},
		"I02 500": {http.StatusInternalServerError, apierrors.IsInternalError},
		"I02 503": {http.StatusServiceUnavailable, apierrors.IsServiceUnavailable},
		"I02 504": {http.StatusGatewayTimeout, apierrors.IsTimeout},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			client, err := kubernetes.NewForConfig(s.config())
			require.NoError(t, err)
			s.Inject(Fault{Status: test.status})
			err = client.CoreV1().Pods("ns").Delete(t.Context(), "p", metav1.DeleteOptions{})
			require.True(t, test.is(err), "%v", err)
		})
	}
}

func TestWhatAFaultHits(t *testing.T) {
	tests := map[string]struct {
		match Match
		hit   bool
	}{
		"everything":             {Match{}, true},
		"its verb":               {Match{Verbs: []string{"get"}}, true},
		"another verb":           {Match{Verbs: []string{"delete"}}, false},
		"its resource":           {Match{Resources: []string{"nodes", "pods"}}, true},
		"another resource":       {Match{Resources: []string{"nodes"}}, false},
		"a subresource":          {Match{Resources: []string{"pods/status"}}, false},
		"its namespace":          {Match{Namespaces: []string{"ns"}}, true},
		"another namespace":      {Match{Namespaces: []string{"other"}}, false},
		"its name":               {Match{Names: []string{"p"}}, true},
		"another name":           {Match{Names: []string{"q"}}, false},
		"its verb, not its name": {Match{Verbs: []string{"get"}, Names: []string{"q"}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.Inject(Fault{Match: test.match, Status: http.StatusServiceUnavailable})
			response, err := s.do(t, http.MethodGet, pods+"/p")
			require.NoError(t, err)
			require.Equal(t, test.hit, response.StatusCode == http.StatusServiceUnavailable)
		})
	}
}

func TestAFaultHitsSoManyTimesAndSoOften(t *testing.T) {
	s := newStage(t)
	count := func(requests int) (hits int) {
		for range requests {
			response, err := s.do(t, http.MethodGet, pods+"/p")
			require.NoError(t, err)
			if response.StatusCode != http.StatusOK {
				hits++
			}
		}
		return hits
	}
	s.Inject(Fault{Status: http.StatusServiceUnavailable, Times: 2})
	require.Equal(t, 2, count(5))
	end := s.Inject(Fault{Status: http.StatusServiceUnavailable, Rate: 0.5})
	require.InDelta(t, 50, count(100), 25)
	end()
	require.Zero(t, count(5))
	s.Inject(Fault{Status: http.StatusServiceUnavailable})
	s.Clear()
	require.Zero(t, count(5))
}

func TestWhatIsLostSilentlyIsResetWhenTheFaultEnds(t *testing.T) {
	for name, loss := range map[string]Loss{"the request": LoseRequest, "the answer": LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			end := s.Inject(Fault{Lose: loss, Silent: true})
			done := make(chan error, 1)
			go func() {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+pods, nil)
				if err == nil {
					_, err = s.client.Do(request) //nolint:bodyclose // There is no answer.
				}
				done <- err
			}()
			s.waitStruck()
			select {
			case err := <-done:
				require.Fail(t, "the client does not wait", "%v", err)
			case <-time.After(50 * time.Millisecond):
			}
			end()
			require.Error(t, <-done)
			_, err := s.do(t, http.MethodGet, pods)
			require.NoError(t, err)
		})
	}
}

func TestDelaysAddUp(t *testing.T) {
	s := newStage(t)
	s.Inject(Fault{Delay: 60 * time.Millisecond})
	s.Inject(Fault{Delay: 60 * time.Millisecond, DelayAnswer: 60 * time.Millisecond})
	began := time.Now()
	_, err := s.do(t, http.MethodPost, pods)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 180*time.Millisecond)
	w := s.recorded(t, 1)[0]
	require.GreaterOrEqual(t, w.Forwarded.Sub(w.Sent), 120*time.Millisecond)
}

func TestAnAnswerBreaksOff(t *testing.T) {
	s := newStage(t)
	s.Inject(Fault{Truncate: 5})
	response, err := s.do(t, http.MethodGet, pods+"/p")
	require.NoError(t, err)
	require.Error(t, response.broken)
	require.Len(t, response.body, 5)
}

func TestTheDateIsShifted(t *testing.T) {
	s := newStage(t)
	s.StepDate(time.Hour)
	s.StepDate(time.Minute)
	shifted := func(status int) {
		t.Helper()
		response, err := s.do(t, http.MethodPost, pods)
		require.NoError(t, err)
		require.Equal(t, status, response.StatusCode)
		date, err := http.ParseTime(response.Header.Get("Date"))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour+time.Minute), date, patienceOfTests)
	}
	shifted(http.StatusOK)
	s.Inject(Fault{Status: http.StatusTooManyRequests})
	shifted(http.StatusTooManyRequests)
	require.Equal(t, time.Hour+time.Minute, s.recorded(t, 2)[0].Offset)
}

func TestAKubeconfigLeadsThroughTheProxy(t *testing.T) {
	s := newStage(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, s.WriteKubeconfig(path))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "Bearer token", s.last.Header.Get("Authorization"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077)
}

func TestAProxyNeedsSomewhereToGo(t *testing.T) {
	_, err := Start(Options{Replica: "a"})
	require.EqualError(t, err, "start proxy of a: no access for its client")
	_, err = Start(Options{Replica: "a", Client: &rest.Config{Host: "::"}})
	require.ErrorContains(t, err, "start proxy of a: ")
}

// watch opens a watch and returns its lines.
func (s *stage) watch(t *testing.T, resource string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(s.asking, http.MethodGet, s.URL()+"/api/v1/"+resource+"?watch=true", nil)
	require.NoError(t, err)
	response, err := s.client.Do(request) //nolint:bodyclose // It is closed when the watch ends.
	require.NoError(t, err)
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		defer func() { _ = response.Body.Close() }()
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func requireLine(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case line, open := <-lines:
		require.True(t, open, "the watch has ended")
		require.Equal(t, want, line)
	case <-time.After(patienceOfTests):
		require.Fail(t, "nothing came")
	}
}

func requireSilence(t *testing.T, lines <-chan string, during time.Duration) {
	t.Helper()
	select {
	case line, open := <-lines:
		require.Fail(t, "the watch said something", "%q, open: %t", line, open)
	case <-time.After(during):
	}
}

func TestI06AFrozenWatchIsOpenAndSilent(t *testing.T) {
	s := newStage(t)
	lines := s.watch(t, "nodes")
	s.say <- "one"
	requireLine(t, lines, "one")

	thaw := s.Freeze(Match{Resources: []string{"nodes"}})
	for i := range 10 {
		s.say <- fmt.Sprintf("frozen %d", i)
	}
	requireSilence(t, lines, 200*time.Millisecond)
	response, err := s.do(t, http.MethodGet, "/api/v1/nodes")
	require.NoError(t, err, "other requests go on")
	require.Equal(t, http.StatusOK, response.StatusCode)

	thaw()
	for i := range 10 {
		requireLine(t, lines, fmt.Sprintf("frozen %d", i))
	}
	s.say <- ""
	_, open := <-lines
	require.False(t, open, "the end of a watch comes through")
}

func TestAWatchThatBeginsFrozenIsFrozenToo(t *testing.T) {
	s := newStage(t)
	s.Freeze(Match{Verbs: []string{"watch"}})
	lines := s.watch(t, "nodes")
	s.say <- "one"
	requireSilence(t, lines, 200*time.Millisecond)
	s.Clear()
	requireLine(t, lines, "one")
}

func TestAWatchThatDoesNotMatchIsNotFrozen(t *testing.T) {
	s := newStage(t)
	s.Freeze(Match{Resources: []string{"nodes"}})
	lines := s.watch(t, "pods")
	s.say <- "one"
	requireLine(t, lines, "one")
}

func TestG03AWatchLags(t *testing.T) {
	s := newStage(t)
	const lag = 300 * time.Millisecond
	end := s.Lag(Match{}, lag)
	lines := s.watch(t, "nodes")
	began := time.Now()
	s.say <- "one"
	requireLine(t, lines, "one")
	require.GreaterOrEqual(t, time.Since(began), lag)
	end()
	s.say <- "two"
	requireLine(t, lines, "two")
}

func TestAFrozenWatchEndsWithItsConnection(t *testing.T) {
	s := newStage(t)
	s.Freeze(Match{})
	lines := s.watch(t, "nodes")
	s.Disconnect()
	select {
	case _, open := <-lines:
		require.False(t, open)
	case <-time.After(patienceOfTests):
		require.Fail(t, "the watch is still open")
	}
	_, err := s.do(t, http.MethodGet, "/api/v1/nodes")
	require.NoError(t, err, "the client can connect anew")
}
