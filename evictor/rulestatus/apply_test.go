package rulestatus

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// sent is a request as an API server gets it.
type sent struct {
	method, uri, kind string
	body              string
}

// serve answers requests as an API server would, and returns what it is asked.
func serve(t *testing.T, code int, answer any) (dynamic.Interface, <-chan sent) {
	t.Helper()
	requests := make(chan sent, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		requests <- sent{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), string(body)}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Errorf("write answer: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client, requests
}

func served(version string) func() (schema.GroupVersionResource, bool) {
	return func() (schema.GroupVersionResource, bool) {
		return schema.GroupVersionResource{Group: resourcev1.GroupName, Version: version, Resource: "devicetaintrules"}, version != ""
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	conditions := []metav1.Condition{
		{
			Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: isFalse, Reason: ReasonNotStarted, ObservedGeneration: 3,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)),
		},
		{
			Type: ConditionEvictionPreview, Status: isTrue, Reason: ReasonPodsWouldBeEvicted, Message: "One pod.", ObservedGeneration: 3,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 8, 1, 12, 1, 0, 0, time.UTC)),
		},
	}

	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run("DE-60 VS-03 conditions are applied to the status in "+version, func(t *testing.T) {
			t.Parallel()
			client, requests := serve(t, http.StatusOK, map[string]any{
				"apiVersion": "resource.k8s.io/" + version, "kind": "DeviceTaintRule",
				"metadata": map[string]any{"name": "broken", "uid": "1234", "resourceVersion": "77", "generation": 4},
				"spec":     map[string]any{"taint": map[string]any{"key": "k", "effect": "None", "timeAdded": "2026-08-01T12:00:00Z"}},
				"status":   map[string]any{"conditions": []any{map[string]any{"type": "EvictionInProgress", "status": "False", "lastTransitionTime": "2026-08-01T12:00:00Z", "observedGeneration": 3}}},
			})
			rule, err := NewApplier(client, served(version)).Apply(t.Context(), "broken", "1234", conditions)
			require.NoError(t, err)
			request := <-requests
			require.Equal(t, http.MethodPatch, request.method)
			require.Equal(t, "/apis/resource.k8s.io/"+version+"/devicetaintrules/broken/status?fieldManager=tollgate&force=true", request.uri)
			require.Equal(t, "application/apply-patch+yaml", request.kind)
			// An empty message must be there: the API requires the field.
			require.JSONEq(t, `{
				"apiVersion": "resource.k8s.io/`+version+`", "kind": "DeviceTaintRule",
				"metadata": {"name": "broken", "uid": "1234"},
				"status": {"conditions": [
					{"type": "EvictionInProgress", "status": "False", "reason": "NotStarted", "message": "", "observedGeneration": 3, "lastTransitionTime": "2026-08-01T12:00:00Z"},
					{"type": "tollgate.dev/EvictionPreview", "status": "True", "reason": "PodsWouldBeEvicted", "message": "One pod.", "observedGeneration": 3, "lastTransitionTime": "2026-08-01T12:01:00Z"}
				]}
			}`, request.body)
			require.Equal(t, "77", rule.ResourceVersion)
			require.Equal(t, int64(4), rule.Generation)
			require.Equal(t, none, rule.Taint.Effect)
			require.Equal(t, int64(3), rule.Conditions[0].ObservedGeneration)
		})
	}

	t.Run("VS-03 the answer about a rule whose selector is not understood selects nothing either", func(t *testing.T) {
		t.Parallel()
		client, _ := serve(t, http.StatusOK, map[string]any{
			"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": map[string]any{"name": "broken"},
			"spec": map[string]any{"deviceSelector": map[string]any{"deviceClassName": "gpu"}, "taint": map[string]any{"key": "k", "effect": "NoExecute"}},
		})
		rule, err := NewApplier(client, served("v1alpha3")).Apply(t.Context(), "broken", "1234", conditions)
		require.NoError(t, err)
		require.False(t, rule.Selects)
		require.Equal(t, []string{"deviceClassName"}, rule.Unsupported)
	})

	t.Run("VS-03 nothing is sent where rules are not served", func(t *testing.T) {
		t.Parallel()
		client, requests := serve(t, http.StatusOK, nil)
		_, err := NewApplier(client, served("")).Apply(t.Context(), "broken", "1234", conditions)
		require.ErrorIs(t, err, errNotServed)
		require.Empty(t, requests)
	})

	t.Run("a refusal keeps its reason", func(t *testing.T) {
		t.Parallel()
		client, _ := serve(t, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		})
		_, err := NewApplier(client, served("v1")).Apply(t.Context(), "broken", "1234", conditions)
		require.ErrorContains(t, err, "apply status of rule broken")
		require.Equal(t, outcomeGone, outcomeOf(err))
	})

	t.Run("VS-03 a path that there is not is told from a rule that there is not", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(server.Close)
		client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
		require.NoError(t, err)
		_, err = NewApplier(client, served("v1alpha3")).Apply(t.Context(), "broken", "1234", conditions)
		require.Equal(t, outcomeNotServed, outcomeOf(err))
	})

	t.Run("an answer that is no rule is an error", func(t *testing.T) {
		t.Parallel()
		client, _ := serve(t, http.StatusOK, map[string]any{
			"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": map[string]any{"name": "broken"}, "spec": "?",
		})
		_, err := NewApplier(client, served("v1")).Apply(t.Context(), "broken", "1234", conditions)
		require.ErrorContains(t, err, "read DeviceTaintRule broken")
	})
}
