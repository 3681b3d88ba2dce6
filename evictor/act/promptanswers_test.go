package act

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestPromptAnswers asks a server that is busy through the client that is used for it.
func TestPromptAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		contentType, body string
		after             string
		want              int
		failure           Failure
	}{
		"I01 priority and fairness, which speaks plain text": {"text/plain; charset=utf-8", "Too many requests, please try again later.", "3", 3, Throttled},
		"I01 an answer without a header":                     {"text/plain", "busy", "", 0, Throttled},
		"G18 a budget that is still being counted": {
			"application/json", string(budgetStatus(t)), "10", 10, BudgetExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				asked++
				mu.Unlock()
				answer.Header().Set("Content-Type", test.contentType)
				if test.after != "" {
					answer.Header().Set("Retry-After", test.after)
				}
				answer.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(answer, test.body)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(PromptAnswers)
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			_, err = New(client, clock.RealClock{}, holdsLease).Evict(t.Context(), Order{Pod: trackedPod(nil), Method: Evict, Holds: holds})
			require.Equal(t, test.failure, Classify(err), "%v", err)
			after, _ := apierrors.SuggestsClientDelay(err)
			require.Equal(t, test.want, after)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 1, asked, "client-go does not ask again by itself")
		})
	}
}

func budgetStatus(t *testing.T) []byte {
	t.Helper()
	return fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,`+
		`"message":"Cannot evict pod as it would violate the pod's disruption budget.",`+
		`"details":{"retryAfterSeconds":10,"causes":[{"reason":%q,"message":"The disruption budget web is still being processed by the server."}]}}`,
		policyv1.DisruptionBudgetCause)
}

// TestINV5ServerErrorsAreHandedBack asks a server that carries out what it then says
// failed: a request made again by client-go would hide that.
func TestINV5ServerErrorsAreHandedBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code              int
		contentType, body string
		failure           Failure
		after             int
	}{
		"I04 503 of a proxy": {http.StatusServiceUnavailable, "text/html", "<html>busy</html>", Unavailable, 2},
		"I04 504 of a proxy": {http.StatusGatewayTimeout, "text/plain", "late", Timeout, 2},
		"I04 500 of the API server": {
			http.StatusInternalServerError, "application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"details":{"retryAfterSeconds":2}}`, Unavailable, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				answer.Header().Set("Content-Type", test.contentType)
				answer.Header().Set("Retry-After", "2")
				answer.WriteHeader(test.code)
				_, _ = io.WriteString(answer, test.body)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(PromptAnswers)
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			done, err := New(client, clock.RealClock{}, holdsLease).Evict(t.Context(), Order{Pod: trackedPod(nil), Method: Evict, Holds: holds})
			require.Equal(t, test.failure, Classify(err), "%v", err)
			require.True(t, done.MayHaveWorked(err))
			after, _ := apierrors.SuggestsClientDelay(err)
			require.Equal(t, test.after, after)
			require.EqualValues(t, 1, asked.Load())
		})
	}
}
