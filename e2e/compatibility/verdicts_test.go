package compatibility

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// reviews are what two versions are asked: pods in two namespaces with tolerations that are
// granted or not, and nodes that are tainted.
func reviews(t *testing.T) map[string]*admissionv1.AdmissionRequest {
	t.Helper()
	const key = "dedicated.example.com/gpu"
	all := map[string]*admissionv1.AdmissionRequest{}
	for name, tolerations := range map[string][]corev1.Toleration{
		"nothing":       nil,
		"the key":       {tolerates(key)},
		"for a while":   {tolerates(key, 60)},
		"too long":      {tolerates(key, 6000)},
		"everything":    {{Operator: corev1.TolerationOpExists}},
		"another key":   {tolerates("example.com/other")},
		"all but which": {tolerates(key), tolerates("example.com/other", 5), {Key: key, Operator: corev1.TolerationOpEqual, Value: "x"}},
	} {
		for _, namespace := range []string{"banana", "apple"} {
			all["pod in "+namespace+" tolerates "+name] = &admissionv1.AdmissionRequest{
				Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Namespace: namespace, Operation: admissionv1.Create, Object: encoded(t, pod("p", "", tolerations...)),
			}
		}
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "asked"}}
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		tainted := bare.DeepCopy()
		tainted.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		all["node is tainted "+string(effect)] = &admissionv1.AdmissionRequest{
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Node"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"},
			Name:     "asked", Operation: admissionv1.Update, Object: encoded(t, tainted), OldObject: encoded(t, bare),
		}
	}
	return all
}

func encoded(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	return runtime.RawExtension{Raw: raw}
}

// requireSameVerdicts fails unless two Tollgates give the same answers, some of them no.
func requireSameVerdicts(t *testing.T, first, second *install.Tollgate) {
	t.Helper()
	client := trusting(t)
	refused := 0
	for name, request := range reviews(t) {
		request.UserInfo = authenticationv1.UserInfo{Username: "alice", Groups: []string{tenants, "system:authenticated"}}
		for _, path := range []string{"/mutate", "/validate"} {
			want, got := ask(t, client, first.WebhookURL+path, request), ask(t, client, second.WebhookURL+path, request)
			require.Equal(t, want.Allowed, got.Allowed, "%s: %s: %v, %v", path, name, want.Result, got.Result)
			require.ElementsMatch(t, patched(t, want), patched(t, got), "%s: %s", path, name)
			if !want.Allowed {
				refused++
			}
		}
	}
	require.Positive(t, refused)
}

// patched returns what a review changes; the values may be times.
func patched(t *testing.T, response *admissionv1.AdmissionResponse) []string {
	t.Helper()
	if len(response.Patch) == 0 {
		return nil
	}
	var operations []struct{ Op, Path string }
	require.NoError(t, json.Unmarshal(response.Patch, &operations))
	var told []string
	for _, operation := range operations {
		told = append(told, operation.Op+" "+operation.Path)
	}
	return told
}

// trusting returns a client that trusts what the webhooks are registered with.
func trusting(t *testing.T) *http.Client {
	t.Helper()
	configuration, err := admin(t).AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle)
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}
}

// ask sends a review as the API server does.
func ask(t *testing.T, client *http.Client, url string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	request.UID = "5d0f6b3e-31f5-4a0c-b7b5-0d7b2b1f9a52"
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: request,
	})
	require.NoError(t, err)
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"?timeout=10s", bytes.NewReader(body))
	require.NoError(t, err)
	post.Header.Set("Content-Type", "application/json")
	response, err := client.Do(post)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", answer)
	var review admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(answer, &review))
	require.NotNil(t, review.Response, "%s", answer)
	return review.Response
}
