package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// pods is the resource that most reviews here are about.
var pods = handlers.Resource{Name: "pods"}

// fixedPolicies are policies that do not change.
type fixedPolicies struct{ set *policyset.Set }

func (f fixedPolicies) Current() *policyset.Set { return f.set }

// fixedNamespaces are namespaces with their labels.
type fixedNamespaces map[string]map[string]string

func (f fixedNamespaces) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	labels, ok := f[name]
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
}

func (f fixedNamespaces) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return f.Namespace(ctx, name)
}

// noObjects is an API server without objects.
type noObjects struct{ client.Reader }

func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

// permitting authorizes by "user verb name".
func permitting(grants ...string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if slices.Contains(grants, a.GetUser().GetName()+" "+a.GetVerb()+" "+a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// guarded is a policy under which only banana may tolerate the taint dedicated.
func guarded() *policyset.Set {
	return policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "dedicated"},
		Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Grants: []v1alpha1.TolerationGrant{
				{Namespaces: []string{"banana"}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "system"}}},
			},
			ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny},
		},
	}})
}

func testOptions() Options {
	return Options{
		Clock:   clock.RealClock{},
		Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
		Budget:  30 * time.Second, // What is judged must not depend on how busy a machine is.
		Bodies:  NewBodies(32 << 20),
	}
}

func testConfig() Config {
	return Config{
		Options: testOptions(),
		Handlers: handlers.Config{
			Clock: clock.RealClock{}, ServerClock: clock.RealClock{},
			Readers: handlers.Readers{
				Policies:   fixedPolicies{guarded()},
				Namespaces: fixedNamespaces{"apple": nil, "banana": nil, "cherry": {"tier": "system"}},
				Live:       noObjects{},
			},
			Authorizers: handlers.Authorizers{Authorizer: permitting()},
			APIServer:   handlers.APIServer{DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, MaxTimeAddedSkew: time.Minute},
			Features:    handlers.Features{NodeTaintTimestamps: true, SchedulingDirectives: true, DeviceTaintAdmission: true},
		},
	}
}

// serveHandler returns the URL of a server that reviews pods with j.
func serveHandler(t *testing.T, opts Options, j handlers.Handler) string {
	t.Helper()
	return serveEndpoint(t, newEndpoint("validate", opts, map[handlers.Resource]handlers.Handler{pods: j}))
}

func serveEndpoint(t *testing.T, endpoint http.Handler) string {
	t.Helper()
	server := httptest.NewServer(endpoint)
	t.Cleanup(server.Close)
	return server.URL
}

// allowed is the result for a request that nothing has to be said about.
func allowed() handlers.Result {
	return handlers.Result{Decision: policy.Decision{Verdict: policy.Allowed}}
}

// allowAll is a handler that allows.
func allowAll(context.Context, *review.Request) (handlers.Result, error) { return allowed(), nil }

func post(t *testing.T, url string, body []byte) (int, string) {
	t.Helper()
	return postAs(t, url, "application/json", bytes.NewReader(body))
}

func postAs(t *testing.T, url, contentType string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(answer)
}

// record sends a body to an endpoint without a connection, and returns the answer.
func record(t *testing.T, endpoint http.Handler, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, request)
	return answer
}

// podReview returns the review of a pod that an API server would send.
func podReview(t *testing.T, operation admissionv1.Operation, object, old string) admissionv1.AdmissionReview {
	t.Helper()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name:      "p",
			Namespace: "apple",
			Operation: operation,
			UserInfo:  authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
			Object:    runtime.RawExtension{Raw: []byte(object)},
		},
	}
	if old != "" {
		review.Request.OldObject = runtime.RawExtension{Raw: []byte(old)}
	}
	return review
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return data
}

func answerOf(t *testing.T, body string) admissionv1.AdmissionReview {
	t.Helper()
	var review admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal([]byte(body), &review))
	require.NotNil(t, review.Response)
	return review
}

func valueOf(t *testing.T, metric prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	require.NoError(t, metric.Write(&out))
	return out.GetCounter().GetValue()
}

// readRequest returns the request of a review.
func readRequest(body []byte) (*review.Request, error) { return new(review.Reader).Read(body) }
