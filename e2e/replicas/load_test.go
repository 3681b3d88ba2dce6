package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// reviewTimeout is how long the API server waits for a webhook of Tollgate.
const reviewTimeout = 3 * time.Second

// load sends reviews to the service until it is stopped, as API servers do: each client
// has one connection over HTTP/2, and opens another one when it is told to.
type load struct {
	halt    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	reviews  int
	failures []failure
	slowest  time.Duration
}

// failure is a review without a verdict.
type failure struct {
	// at is the address of the replica that had it; empty when none had.
	at           string
	began, ended time.Time
	err          error
}

// String says what became of the review.
func (f failure) String() string {
	return fmt.Sprintf("at %q, from %s for %s: %v", f.at, f.began.Format(time.StampMilli), f.ended.Sub(f.began), f.err)
}

// startLoad starts clients that send so many reviews a second in sum. One more has a new
// connection for each of its reviews, and one asks the API server instead.
func startLoad(t *testing.T, clients, perSecond int) *load {
	t.Helper()
	ctx, halt := context.WithCancel(t.Context())
	l := &load{halt: halt}
	t.Cleanup(l.stop)
	roots, body := caBundle(t), review(t)
	pause := time.Second * time.Duration(clients) / time.Duration(perSecond)
	for range clients {
		client := callerOf(roots, true)
		l.run(ctx, pause, func(ctx context.Context) (string, error) { return ask(ctx, client, body) })
	}
	fresh := callerOf(roots, false)
	l.run(ctx, 50*time.Millisecond, func(ctx context.Context) (string, error) { return ask(ctx, fresh, body) })
	server := clientOf(t)
	l.run(ctx, 100*time.Millisecond, func(ctx context.Context) (string, error) { return "", askServer(ctx, server) })
	return l
}

// run asks again and again, at most once in each period.
func (l *load) run(ctx context.Context, period time.Duration, ask func(ctx context.Context) (string, error)) {
	l.running.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			began := time.Now()
			at, err := ask(ctx)
			if ctx.Err() != nil {
				return // it is the load that ended
			}
			l.note(failure{at: at, began: began, ended: time.Now(), err: err})
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

func (l *load) note(result failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reviews++
	l.slowest = max(l.slowest, result.ended.Sub(result.began))
	if result.err != nil {
		l.failures = append(l.failures, result)
	}
}

// stop ends the load, and returns when no review is under way.
func (l *load) stop() {
	l.halt()
	l.running.Wait()
}

// result returns how many reviews there were, the longest that one took, and those that
// failed.
func (l *load) result() (reviews int, slowest time.Duration, failures []failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reviews, l.slowest, slices.Clone(l.failures)
}

// death is when a replica was killed, and when the balancer had heard of it.
type death struct{ killed, heard time.Time }

// requireOnlyOf stops the load and fails if a review failed that was not with a replica
// that was killed, or began after the balancer had heard of that.
func requireOnlyOf(t *testing.T, l *load, dead *replica, deaths ...death) {
	t.Helper()
	l.stop()
	reviews, slowest, failures := l.result()
	t.Logf("%d reviews, the slowest took %s, %d failed", reviews, slowest.Round(time.Millisecond), len(failures))
	// Until the balancer hears of it, every second review is given to the dead one; how many
	// are asked for after that depends on how soon its successor leads.
	require.Greater(t, reviews, 2*len(failures))
	for _, f := range failures {
		// The one that had none was given to the dead replica and refused.
		if dead != nil && f.at != "" {
			require.Equal(t, dead.address, f.at, "%v", f.err)
		}
		require.True(t, slices.ContainsFunc(deaths, func(d death) bool {
			return f.ended.After(d.killed) && f.began.Before(d.heard)
		}), "a review from %s to %s: %v", f.began, f.ended, f.err)
	}
}

// caBundle is what the API server trusts.
func caBundle(t *testing.T) *x509.CertPool {
	t.Helper()
	configuration, err := clientOf(t).AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle))
	return roots
}

func callerOf(roots *x509.CertPool, keepAlive bool) *http.Client {
	return &http.Client{Timeout: reviewTimeout, Transport: &http.Transport{
		DisableKeepAlives: !keepAlive,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}
}

// review is the review of a pod that is to be created.
func review(t *testing.T) []byte {
	t.Helper()
	object, err := json.Marshal(podOn(0, "reviewed", forever))
	require.NoError(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "1c8b4b6d-7a0e-4d0e-9a53-5a3f0a5e7a11",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: metav1.NamespaceDefault,
			Operation: admissionv1.Create,
			UserInfo:  authenticationv1.UserInfo{Username: "alice"},
			Object:    runtime.RawExtension{Raw: object},
		},
	})
	require.NoError(t, err)
	return body
}

// ask sends a review, and returns the address of the replica that had it.
func ask(ctx context.Context, client *http.Client, body []byte) (at string, err error) {
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		at = service.At(got.Conn.LocalAddr().String())
	}}
	url := "https://" + service.Address() + "/validate?timeout=3s"
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return at, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return at, err
	}
	var verdict admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &verdict); err != nil || verdict.Response == nil || !verdict.Response.Allowed {
		return at, fmt.Errorf("status %d: %s", response.StatusCode, answer)
	}
	return at, nil
}

// askServer asks the API server, which asks both webhooks, to create a pod as a dry run.
func askServer(ctx context.Context, client kubernetes.Interface) error {
	pod := podOn(0, "asked", forever)
	_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
