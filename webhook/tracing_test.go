package webhook

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// traceparent is a header of W3C Trace Context, with the decision to sample or not.
func traceparent(flags string) string {
	return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags
}

// spansOf returns the spans of a review that comes with a header.
func spansOf(t *testing.T, sampler sdktrace.Sampler, config Config, parent string, body []byte) (tracetest.SpanStubs, int) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	config.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sdktrace.ParentBased(sampler))).Tracer("test")
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate?timeout=3s", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if parent != "" {
		req.Header.Set("Traceparent", parent)
	}
	answer := httptest.NewRecorder()
	Validate(config).ServeHTTP(answer, req)
	return exporter.GetSpans(), answer.Code
}

func TestAReviewIsASpanOfTheTraceOfTheAPIServer(t *testing.T) {
	t.Parallel()
	config := withPolicies(policyset.None().WithTolerations(guardingShare(3, all, "")))
	spans, status := spansOf(t, sdktrace.NeverSample(), config, traceparent("01"), typicalReview(t))
	require.Equal(t, http.StatusOK, status)
	require.Len(t, spans, 1)
	span := spans[0]
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext.TraceID().String())
	require.Equal(t, "b7ad6b7169203331", span.Parent.SpanID().String())
	require.Equal(t, "review", span.Name)
	got := map[attribute.Key]string{}
	for _, a := range span.Attributes {
		got[a.Key] = a.Value.String()
	}
	require.Equal(t, "validate", got["tollgate.endpoint"])
	require.Equal(t, "pods", got["tollgate.resource"])
	require.Equal(t, "CREATE", got["tollgate.operation"])
	require.NotEmpty(t, got["tollgate.namespace"])
	require.NotEmpty(t, got["tollgate.request.uid"])
	require.Equal(t, "allowed", got["tollgate.verdict"])
	require.Equal(t, "0", got["tollgate.policies"])
}

func TestTheAPIServerDecidesWhatIsTraced(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		sampler sdktrace.Sampler
		parent  string
		spans   int
	}{
		"it does not trace the request":             {sdktrace.AlwaysSample(), traceparent("00"), 0},
		"it traces the request":                     {sdktrace.NeverSample(), traceparent("01"), 1},
		"without its decision the rate holds":       {sdktrace.NeverSample(), "", 0},
		"without its decision all may be traced":    {sdktrace.AlwaysSample(), "", 1},
		"a header that is not valid is no decision": {sdktrace.AlwaysSample(), "00-x", 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			spans, status := spansOf(t, c.sampler, withPolicies(policyset.None()), c.parent, typicalReview(t))
			require.Equal(t, http.StatusOK, status)
			require.Len(t, spans, c.spans)
		})
	}
}

func TestASpanHasNoTextsOfErrors(t *testing.T) {
	t.Parallel()
	spans, status := spansOf(t, sdktrace.AlwaysSample(), withPolicies(nil), "", typicalReview(t))
	require.Equal(t, http.StatusInternalServerError, status)
	require.Len(t, spans, 1)
	require.Equal(t, codes.Error, spans[0].Status.Code)
	require.Equal(t, "no decision could be made", spans[0].Status.Description)
	require.Empty(t, spans[0].Events)
}

func TestWhatIsNoReviewIsNoSpan(t *testing.T) {
	t.Parallel()
	spans, status := spansOf(t, sdktrace.AlwaysSample(), withPolicies(policyset.None()), "", []byte("{}"))
	require.Equal(t, http.StatusBadRequest, status)
	require.Empty(t, spans)
}
