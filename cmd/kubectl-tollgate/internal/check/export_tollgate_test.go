package check

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// exportWorld is what Tollgate's webhook knows.
type exportWorld struct {
	client.Reader

	policies   policyset.Set
	namespaces map[string]*corev1.Namespace
}

func (w *exportWorld) Current() *policyset.Set { return &w.policies }

func (w *exportWorld) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if namespace, ok := w.namespaces[name]; ok {
		return namespace, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

func (w *exportWorld) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return w.Namespace(ctx, name)
}

func (w *exportWorld) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

func (w *exportWorld) Tolerations(context.Context, string) ([]corev1.Toleration, error) {
	return nil, nil
}

// tollgate returns Tollgate's validating webhook by policies.
func tollgate(found *policies, namespaces map[string]*corev1.Namespace, by authorizer.Authorizer) http.Handler {
	w := &exportWorld{
		policies:   policyset.Set{Tolerations: toleration.Compile(found.tolerations), Taints: taint.Compile(found.taints)},
		namespaces: namespaces,
	}
	return webhook.Validate(webhook.Config{
		Options: webhook.Options{
			Clock: clock.RealClock{}, Metrics: webhook.NewMetrics(prometheus.NewPedanticRegistry()), Budget: time.Minute, Bodies: webhook.NewBodies(64 << 20),
		},
		Handlers: handlers.Config{
			Clock: clock.RealClock{}, ServerClock: clock.RealClock{},
			Readers:     handlers.Readers{Policies: w, Namespaces: w, Live: w, Cache: w, RuntimeClasses: w},
			Authorizers: handlers.Authorizers{Authorizer: by},
			Users:       handlers.Users{Selves: []string{"system:serviceaccount:tollgate-system:tollgate"}},
			APIServer:   handlers.APIServer{DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, MaxTimeAddedSkew: time.Minute},
			Features:    handlers.Features{SchedulingDirectives: true, DeviceTaintAdmission: true},
		},
	})
}

// judge returns what Tollgate says of a request.
func judge(tb testing.TB, handler http.Handler, r *request) answer {
	tb.Helper()
	asked := *r.AdmissionRequest
	asked.UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
	asked.RequestKind, asked.RequestResource = &asked.Kind, &asked.Resource
	asked.Object, asked.OldObject = encoded(tb, r.object), encoded(tb, r.old)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &asked,
	})
	require.NoError(tb, err)
	post := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/validate", bytes.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, post)
	require.Equal(tb, http.StatusOK, recorder.Code, recorder.Body.String())
	var review admissionv1.AdmissionReview
	require.NoError(tb, json.Unmarshal(recorder.Body.Bytes(), &review))
	said := answer{denied: !review.Response.Allowed, messages: review.Response.Warnings}
	for _, warning := range review.Response.Warnings {
		said.warned = said.warned || strings.Contains(warning, "Policy/")
	}
	if said.denied {
		said.messages = append(said.messages, review.Response.Result.Message)
	}
	return said
}

func encoded(tb testing.TB, object runtime.Object) runtime.RawExtension {
	tb.Helper()
	if object == nil {
		return runtime.RawExtension{}
	}
	raw, err := json.Marshal(object)
	require.NoError(tb, err)
	return runtime.RawExtension{Raw: raw}
}
