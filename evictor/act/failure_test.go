package act

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Errors as the API server and client-go return them.
var (
	podResource  = schema.GroupResource{Resource: "pods"}
	errConflict  = apierrors.NewConflict(podResource, "a", errors.New("changed"))
	errDenied    = apierrors.NewForbidden(podResource, "a", errors.New("admission webhook denied the request"))
	errBusy      = apierrors.NewTooManyRequests("busy", 7)
	errDown      = apierrors.NewInternalError(errors.New("no storage"))
	errLost      = fmt.Errorf("read answer: %w", context.DeadlineExceeded)
	errNotServed = apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "r", "404 page not found", 0, true)
)

func TestClassify(t *testing.T) {
	t.Parallel()
	status := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReasonUnknown}}
	}
	for _, test := range []struct {
		name string
		err  error
		want Failure
	}{
		{"no error", nil, NoFailure},
		{"the object is gone", apierrors.NewNotFound(podResource, "a"), NotFound},
		{"the API does not know such objects", errNotServed, Unavailable},
		{"a precondition or a version does not hold", errConflict, Conflict},
		{"the API server is busy", errBusy, Throttled},
		{"a webhook or RBAC says no", errDenied, Denied},
		{"the token is no good", apierrors.NewUnauthorized("who"), Denied},
		{"a webhook says no with a code of its own", status(http.StatusTeapot), Denied},
		{"a webhook says no with a code of the server's", &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusInternalServerError, Message: `admission webhook "w.example.com" denied the request: broken`,
		}}, Denied},
		{"a webhook cannot be called", apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": no endpoints`)), Denied},
		{"the object is not valid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), Invalid},
		{"the request is not valid", apierrors.NewBadRequest("what"), Invalid},
		{"the API server ran out of time", apierrors.NewTimeoutError("slow", 1), Timeout},
		{"the storage ran out of time", apierrors.NewServerTimeout(podResource, "get", 1), Timeout},
		{"the client ran out of time", errLost, Timeout},
		{"the client was stopped", context.Canceled, Timeout},
		{"an internal error", errDown, Unavailable},
		{"no server behind the load balancer", apierrors.NewServiceUnavailable("gone"), Unavailable},
		{"a server error of an unknown kind", status(http.StatusBadGateway), Unavailable},
		{"no connection", errors.New("dial tcp: no route to host"), Unavailable},
		{"a wrapped error is what it wraps", fmt.Errorf("delete pod: %w", errConflict), Conflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Classify(test.err))
		})
	}
	require.Equal(t, `pods "a" is forbidden: admission webhook denied the request`, Explain(fmt.Errorf("delete pod: %w", errDenied)))
	require.Equal(t, "unavailable", Explain(errDown), "what goes on inside the API server is not for users")
	require.Len(t, Explain(apierrors.NewBadRequest(strings.Repeat("x", 1000))), longestMessage)
	require.True(t, Timeout.Ambiguous())
	require.True(t, Unavailable.Ambiguous())
	require.False(t, Conflict.Ambiguous())
	require.False(t, Denied.Ambiguous(), "a webhook is asked before anything is stored")
	require.True(t, Throttled.Transient())
	require.False(t, Denied.Transient())
}
