package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// perSecond is the number of ordinary reviews a second. Every asksEvery-th of them leads
	// to a question about permissions that was not asked before.
	perSecond = 50
	asksEvery = 10
	// reviewTimeout is what the API server waits for Tollgate.
	reviewTimeout = 3 * time.Second
)

// caBundle is what the API server trusts.
func caBundle(t *testing.T) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(caCertificate(t)))
	return roots
}

// caCertificate is that of the CA which the API server trusts.
func caCertificate(t *testing.T) []byte {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	configuration, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	return configuration.Webhooks[0].ClientConfig.CABundle
}

// caller sends reviews to the port of Tollgate.
type caller struct{ http.Client }

// newCaller returns a caller from an address of this machine: limits are for each address.
func newCaller(roots *x509.CertPool, from string) *caller {
	return &caller{http.Client{Timeout: reviewTimeout, Transport: transport(roots, from)}}
}

func transport(roots *x509.CertPool, from string) *http.Transport {
	return &http.Transport{
		DialContext:       dialer(from).DialContext,
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
}

func dialer(from string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
}

// review is the review of a pod of a service account that is to be created. Key is that of a
// taint that it tolerates; empty for none.
func review(namespace, account, key string) []byte {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
	if key != "" {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	return encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "1c8b4b6d-7a0e-4d0e-9a53-5a3f0a5e7a11",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: namespace,
			Operation: admissionv1.Create,
			UserInfo:  authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
			Object:    runtime.RawExtension{Raw: encode(pod)},
		},
	})
}

func encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // what is encoded here can be
	}
	return encoded
}

// ask sends a review and returns whether the pod is allowed. An error means that there was no
// verdict.
func (c *caller) ask(ctx context.Context, body []byte) (allowed bool, err error) {
	return c.askAt(ctx, "/validate?timeout="+reviewTimeout.String(), body)
}

// askAt is ask at a path.
func (c *caller) askAt(ctx context.Context, path string, body []byte) (allowed bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, tollgate.WebhookURL+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	var verdict admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &verdict); err != nil || verdict.Response == nil {
		return false, fmt.Errorf("status %d: %s", response.StatusCode, strings.TrimSpace(string(answer)))
	}
	return verdict.Response.Allowed, nil
}

// measurement is what became of ordinary reviews.
type measurement struct {
	mu     sync.Mutex
	took   []time.Duration
	failed []string
}

// take sends ordinary reviews for a while, each when it is its time, whether or not those
// before it were answered.
func (m *measurement) take(t *testing.T, c *caller, lasts time.Duration) {
	t.Helper()
	var running sync.WaitGroup
	began := time.Now()
	n := 0
	every(t.Context(), lasts, perSecond, func() {
		n++
		body := review(ordinary, "default", taintKey)
		switch {
		case n%asksEvery == 0:
			body = review(ordinary, fmt.Sprintf("account-%d-%d", began.UnixNano(), n), taintKey)
		case n%2 == 0:
			body = review(ordinary, "default", "")
		}
		running.Go(func() {
			start := time.Now()
			allowed, err := c.ask(t.Context(), body)
			m.note(time.Since(start), allowed, err)
		})
	})
	running.Wait()
}

// every calls f so often a second, for a while. What is late is made up for.
func every(ctx context.Context, lasts time.Duration, perSecond int, f func()) {
	began := time.Now()
	for n := range int(lasts.Seconds() * float64(perSecond)) {
		timer := time.NewTimer(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			f()
		}
	}
}

func (m *measurement) note(took time.Duration, allowed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, took)
	switch {
	case err != nil:
		m.failed = append(m.failed, fmt.Sprintf("after %s: %v", took.Round(time.Millisecond), err))
	case !allowed:
		m.failed = append(m.failed, "refused")
	}
}

// failures are the reviews without the verdict that they should have.
func (m *measurement) failures() []string { return m.failed }

// percentile returns the time within which so many of a hundred reviews were answered.
func (m *measurement) percentile(p int) time.Duration {
	if len(m.took) == 0 {
		return 0
	}
	took := slices.Sorted(slices.Values(m.took))
	return took[min(len(took)-1, len(took)*p/100)]
}

// String says what became of the reviews.
func (m *measurement) String() string {
	round := func(p int) time.Duration { return m.percentile(p).Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d reviews, %d failed, p50 %s, p99 %s, the slowest %s", len(m.took), len(m.failed), round(50), round(99), round(100))
}
