package handlers

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

func TestADenialHasABoundedNumberOfCauses(t *testing.T) {
	for name, tt := range map[string]struct {
		denials, causes int
		last            string
	}{
		"as many as there may be": {maxCauses, maxCauses, "problem"},
		"one more":                {maxCauses + 1, maxCauses, "and 2 more causes"},
		"many more":               {10_000, maxCauses, "and 9951 more causes"},
	} {
		t.Run(name, func(t *testing.T) {
			found := make([]policy.Finding, tt.denials)
			for i := range found {
				found[i] = policy.Finding{Reason: policy.Invalid, Field: "spec", Problem: "problem"}
			}
			result := Result{Decision: policy.Decide(found)}
			response := result.Response()
			require.Equal(t, int32(http.StatusForbidden), response.Result.Code)
			causes := response.Result.Details.Causes
			require.Len(t, causes, tt.causes)
			require.Equal(t, tt.last, causes[len(causes)-1].Message)
			require.Equal(t, metav1.CauseType(policy.Invalid), causes[0].Type)
		})
	}
}
