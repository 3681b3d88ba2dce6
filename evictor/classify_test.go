package evictor

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
			require.Equal(t, test.want, classify(test.err))
		})
	}
	require.Equal(t, `pods "a" is forbidden: admission webhook denied the request`, explain(fmt.Errorf("delete pod: %w", errDenied)))
	require.Equal(t, "unavailable", explain(errDown), "what goes on inside the API server is not for users")
	require.Len(t, explain(apierrors.NewBadRequest(strings.Repeat("x", 1000))), longestMessage)
	require.True(t, Timeout.Ambiguous())
	require.True(t, Unavailable.Ambiguous())
	require.False(t, Conflict.Ambiguous())
	require.True(t, Throttled.transient())
	require.False(t, Denied.transient())
}
