package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
)

// Review judges as the endpoint does, and says what the response was made of.
func TestReviewTellsTheFindingsOfItsResponse(t *testing.T) {
	t.Parallel()
	endpoint := Validate(Config{
		Policies: fixedPolicies{guarded()}, Namespaces: fixedNamespaces{"apple": nil}, Live: storing(),
		Options: Options{Clock: clock.RealClock{}},
	})
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "apple"}}
	req.Resource.Resource, req.Resource.Version = "pods", "v1"
	req.Object = runtime.RawExtension{Raw: []byte(`{"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}`)}
	response, told, err := endpoint.Review(t.Context(), req)
	require.NoError(t, err)
	require.False(t, response.Allowed)
	require.Len(t, told, 1)
	require.Equal(t, policy.TolerationNotGranted, told[0].Reason)
	require.Equal(t, told[0].String(), response.Result.Message)

	_, told, err = endpoint.Review(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, told, 1, "each review has findings of its own")
	req.Resource.Resource = "services"
	_, _, err = endpoint.Review(t.Context(), req)
	require.ErrorContains(t, err, "does not judge services")
}

func TestAnUnfollowedPodIsToldFromOtherFaults(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, &unfollowedError{}, ErrUnfollowed)
	require.NotErrorIs(t, errPodsUnread, ErrUnfollowed)
}
