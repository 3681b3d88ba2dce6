package webhook

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
)

// What a policy does not look at may be a password: no answer, no log and no metric
// repeats it, whatever comes of the review.
func TestF13WhatIsNotJudgedIsNeverRepeated(t *testing.T) {
	const (
		password   = "hunter2"
		metadata   = `"metadata":{"annotations":{"example.com/token":"hunter2"}}`
		containers = `"containers":[{"name":"c","image":"i","args":["hunter2"],"env":[{"name":"PASSWORD","value":"hunter2"}]}]`
		tolerant   = `"tolerations":[{"operator":"Exists"}]`
	)
	tests := map[string]struct {
		namespace, object string
		status            int
		contains          string
	}{
		"a pod that is allowed":       {"apple", `{` + metadata + `,"spec":{` + containers + `}}`, http.StatusOK, `"allowed":true`},
		"a pod that is denied":        {"apple", `{` + metadata + `,"spec":{` + containers + `,` + tolerant + `}}`, http.StatusOK, `"allowed":false`},
		"a pod that cannot be judged": {"unknown", `{` + metadata + `,"spec":{` + containers + `,` + tolerant + `}}`, http.StatusInternalServerError, "no decision"},
		"a pod that does not decode":  {"apple", `{` + metadata + `,"spec":{` + containers + `,"tolerations":"hunter2"}}`, http.StatusBadRequest, "tolerations"},
		"a pod with a list for a map": {"apple", `{` + metadata + `,"spec":{"nodeSelector":["hunter2"]}}`, http.StatusBadRequest, "nodeSelector"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var logged strings.Builder
			log := funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{Verbosity: 10})
			metrics := prometheus.NewRegistry()
			config := testConfig()
			config.Metrics = NewMetrics(metrics)
			review := podReview(t, admissionv1.Create, tt.object, "")
			review.Request.Namespace = tt.namespace
			ask := func(endpoint http.Handler) *httptest.ResponseRecorder {
				request := httptest.NewRequestWithContext(logr.NewContext(t.Context(), log), http.MethodPost, "/", bytes.NewReader(marshal(t, review)))
				request.Header.Set("Content-Type", "application/json")
				answer := httptest.NewRecorder()
				endpoint.ServeHTTP(answer, request)
				return answer
			}
			validated := ask(Validate(config))
			require.Equal(t, tt.status, validated.Code)
			require.Contains(t, validated.Body.String(), tt.contains)
			require.NotContains(t, validated.Body.String(), password)
			require.NotContains(t, ask(Mutate(config)).Body.String(), password)
			families, err := metrics.Gather()
			require.NoError(t, err)
			require.NotEmpty(t, families)
			for _, family := range families {
				require.NotContains(t, family.String(), password)
			}
			require.NotContains(t, logged.String(), password)
		})
	}
}
