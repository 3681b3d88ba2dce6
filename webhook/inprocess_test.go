package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

func TestReviewReturnsTheFindingsOfItsResponse(t *testing.T) {
	t.Parallel()
	endpoint := Validate(Config{
		Handlers: handlers.Config{
			Clock:   clock.RealClock{},
			Readers: handlers.Readers{Policies: fixedPolicies{guarded()}, Namespaces: fixedNamespaces{"apple": nil}, Live: noObjects{}},
		},
		Options: Options{Clock: clock.RealClock{}},
	})
	req, err := review.Of(&admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "apple", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: runtime.RawExtension{Raw: []byte(`{"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}`)},
	})
	require.NoError(t, err)
	result, err := endpoint.Review(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, policy.Denied, result.Verdict)
	require.Len(t, result.Findings, 1)
	require.Equal(t, policy.TolerationNotGranted, result.Findings[0].Reason)
	require.Equal(t, result.Findings[0].String(), result.Response().Result.Message)
	req.Resource.Resource = "services"
	_, err = endpoint.Review(t.Context(), req)
	require.ErrorContains(t, err, "does not judge services")
}
