package eviction

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// classified notes by which FlowSchema the API server took a request.
type classified struct {
	next   http.RoundTripper
	schema string
}

func (c *classified) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil {
		c.schema = response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	}
	return response, err
}

func TestI14TollgateHasATurnOfItsOwn(t *testing.T) {
	uidOf := func(name string) string {
		schema, err := clientOf(t).FlowcontrolV1().FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		for _, condition := range schema.Status.Conditions {
			if condition.Type == flowcontrolv1.FlowSchemaConditionDangling {
				require.Equal(t, flowcontrolv1.ConditionFalse, condition.Status, "its priority level exists")
			}
		}
		return string(schema.UID)
	}
	as := shared.As("system:serviceaccount:tollgate-system:tollgate", "system:serviceaccounts", "system:serviceaccounts:tollgate-system", "system:authenticated")
	seen := &classified{}
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	tollgate, err := kubernetes.NewForConfig(as)
	require.NoError(t, err)

	_, err = tollgate.CoordinationV1().Leases("tollgate-system").Get(t.Context(), "tollgate", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, uidOf("tollgate-lease"), seen.schema, "the lease is renewed whatever else there is to do")

	_, err = tollgate.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, uidOf("tollgate"), seen.schema, "and so are pods read and evicted")
}
