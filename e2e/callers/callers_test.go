package callers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// The kinds of webhook configurations that tokens are bound to.
const (
	validating = "ValidatingWebhookConfiguration"
	mutating   = "MutatingWebhookConfiguration"
)

// review returns the review of an object that an API server would send.
func review(t *testing.T, group, resource, kind string) []byte {
	t.Helper()
	version := metav1.GroupVersion{Group: group, Version: "v1"}
	content, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:      metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
			Resource:  metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
			Name:      "x",
			Namespace: metav1.NamespaceDefault,
			Operation: admissionv1.Create,
			UserInfo:  authenticationv1.UserInfo{Username: "alice"},
			Object: runtime.RawExtension{Raw: fmt.Appendf(nil,
				`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x","namespace":"default"},"spec":{}}`, version.String(), kind)},
		},
	})
	require.NoError(t, err)
	return content
}

// caller calls Tollgate by itself.
type caller struct {
	http *http.Client
	// token is shown if it is not empty.
	token string
}

// newCaller returns a caller that trusts Tollgate's certificate, and shows one of its own if
// it has one.
func newCaller(t *testing.T, shown ...tls.Certificate) *caller {
	t.Helper()
	configuration, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: shown}}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

func (c *caller) with(token string) *caller { return &caller{http: c.http, token: token} }

// post sends a review, and returns all that is answered.
func (c *caller) post(t *testing.T, path string, content []byte) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tollgate.WebhookURL+path, bytes.NewReader(content))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// refused requires that a review is refused, without a word about anything.
func (c *caller) refused(t *testing.T, path string, content []byte) {
	t.Helper()
	status, body := c.post(t, path, content)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, "unauthorized\n", body)
}

// answered requires that a review is answered. Until Tollgate has read the keys of the API
// server it may not be.
func (c *caller) answered(t *testing.T, path string, content []byte) {
	t.Helper()
	status, body := c.post(t, path, content)
	for until := time.Now().Add(time.Minute); status == http.StatusUnauthorized && time.Now().Before(until); {
		time.Sleep(100 * time.Millisecond)
		status, body = c.post(t, path, content)
	}
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"kind":"AdmissionReview"`)
}

func issued(t *testing.T, by *authority, name string, until time.Duration) tls.Certificate {
	t.Helper()
	certificate, key, err := by.issue(name, until)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	return pair
}

func TestTheAPIServerIsAdmittedByItsClientCertificate(t *testing.T) {
	before := counted(t, "certificate", "accepted")
	_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "stamped"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	for _, taint := range node.Spec.Taints {
		if taint.Key == "example.com/x" {
			require.NotNil(t, taint.TimeAdded, "the mutating webhook, which may fail, was admitted too")
		}
	}
	require.GreaterOrEqual(t, counted(t, "certificate", "accepted")-before, 2)
}

func TestF08OtherCertificatesThanTheOneThatIsNamedAreRefused(t *testing.T) {
	cluster, err := authorityIn(filepath.Join(shared.Dir(), "pki", "ca.crt"), filepath.Join(shared.Dir(), "pki", "ca.key"))
	require.NoError(t, err)
	stranger, err := newAuthority()
	require.NoError(t, err)
	tests := map[string][]tls.Certificate{
		"none":                            nil,
		"of another authority":            {issued(t, stranger, apiServer, lasting)},
		"of the authority of the cluster": {issued(t, cluster, apiServer, lasting)},
		"of the right authority and another name": {issued(t, trusted, "system:node:node-1", lasting)},
		"one that has expired":                    {issued(t, trusted, apiServer, -time.Minute)},
	}
	for name, shown := range tests {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/mutate", "/validate"} {
				newCaller(t, shown...).refused(t, path, review(t, "", "pods", "Pod"))
			}
		})
	}
	newCaller(t, issued(t, trusted, apiServer, lasting)).answered(t, "/validate", review(t, "", "pods", "Pod"))
}

// request asks the API server for a token.
func request(t *testing.T, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	answer, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Token
}

// boundTo is what is asked for a token that is bound to a webhook configuration.
func boundTo(kind, name, audience, group string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{
		Audiences: []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: kind, APIVersion: "admissionregistration.k8s.io/v1", Name: name,
		},
		Attestations: map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {group}},
	}
}

func TestTokensThatTheAPIServerMintsForAWebhookAreAccepted(t *testing.T) {
	before := counted(t, "token", "accepted")
	pods, deployments := review(t, "", "pods", "Pod"), review(t, "apps", "deployments", "Deployment")
	all := newCaller(t).with(request(t, everyone, boundTo(validating, install.Name, tollgate.WebhookURL+"/validate", "*")))
	all.answered(t, "/validate", pods)
	all.answered(t, "/validate", deployments)
	all.refused(t, "/mutate", pods)

	mutates := newCaller(t).with(request(t, everyone, boundTo(mutating, install.Name, tollgate.WebhookURL+"/mutate", "*")))
	mutates.answered(t, "/mutate", pods)
	mutates.refused(t, "/validate", pods)

	apps := newCaller(t).with(request(t, forApps, boundTo(validating, install.Name, tollgate.WebhookURL+"/validate", "apps")))
	apps.answered(t, "/validate", deployments)
	apps.refused(t, "/validate", pods)
	require.Equal(t, 4, counted(t, "token", "accepted")-before)
}

func TestF06OtherTokensOfTheAPIServerAreRefused(t *testing.T) {
	audience := tollgate.WebhookURL + "/validate"
	// Until Tollgate has read the keys of the API server it refuses all tokens.
	newCaller(t).with(request(t, everyone, boundTo(validating, install.Name, audience, "*"))).
		answered(t, "/validate", review(t, "", "pods", "Pod"))
	own, err := os.ReadFile(tollgate.Kubeconfig)
	require.NoError(t, err)
	_, ofTollgate, _ := strings.Cut(string(own), "token: ")
	ofTollgate, _, _ = strings.Cut(ofTollgate, "\n")
	require.NotEmpty(t, ofTollgate)

	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "somebody.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &audience},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
			// Nothing is sent there.
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	tests := map[string]string{
		"none":                                    "",
		"what is none":                            "let-me-in",
		"Tollgate's own":                          ofTollgate,
		"for the API server":                      request(t, everyone, authenticationv1.TokenRequestSpec{}),
		"for this webhook, and not bound to it":   request(t, everyone, authenticationv1.TokenRequestSpec{Audiences: []string{audience}}),
		"bound to this webhook, and for another":  request(t, everyone, boundTo(validating, install.Name, "https://example.com/validate", "*")),
		"for this webhook, and bound to another":  request(t, everyone, boundTo(validating, "somebody-elses", audience, "*")),
		"for this webhook, and of the other kind": request(t, everyone, boundTo(mutating, install.Name, audience, "*")),
	}
	for name, token := range tests {
		t.Run(name, func(t *testing.T) {
			newCaller(t).with(token).refused(t, "/validate", review(t, "", "pods", "Pod"))
		})
	}
}

// Who needs a token to be admitted must get one without being admitted.
func TestTollgateIsNotAskedAboutTokens(t *testing.T) {
	validates, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	mutates, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	var rules []admissionregistrationv1.RuleWithOperations
	for i := range validates.Webhooks {
		rules = append(rules, validates.Webhooks[i].Rules...)
	}
	for i := range mutates.Webhooks {
		rules = append(rules, mutates.Webhooks[i].Rules...)
	}
	require.NotEmpty(t, rules)
	for _, rule := range rules {
		require.NotContains(t, rule.APIGroups, "*")
		for _, resource := range rule.Resources {
			require.NotContains(t, resource, "*")
			require.NotContains(t, resource, "serviceaccounts")
		}
	}
}

// counted returns how many callers were counted.
func counted(t *testing.T, way, outcome string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tollgate.MetricsURL, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	series := fmt.Sprintf("tollgate_admission_callers_total{outcome=%q,way=%q} ", outcome, way)
	_, value, _ := strings.Cut(string(body), series)
	value, _, _ = strings.Cut(value, "\n")
	var n int
	_, _ = fmt.Sscan(value, &n) // One that never was is not there.
	return n
}
