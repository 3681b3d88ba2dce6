package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestRequestsAreTracedWithWhatTheyAreMadeFor(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		parent  sdktrace.Sampler
		request bool
	}{
		"a request below a span that is sampled is a span, and carries its context": {sdktrace.AlwaysSample(), true},
		"a request below a span that is not sampled is none, and carries nothing":   {sdktrace.NeverSample(), false},
		"a request that is made for nothing traced is none, and carries nothing":    {nil, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var carried string
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { carried = r.Header.Get("Traceparent") }))
			defer server.Close()
			exporter, ctx := tracetest.NewInMemoryExporter(), t.Context()
			if c.parent != nil {
				provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sdktrace.ParentBased(c.parent)))
				ctx, _ = provider.Tracer("test").Start(ctx, "eviction")
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodDelete, server.URL, http.NoBody)
			require.NoError(t, err)
			answer, err := (&http.Client{Transport: traceRequests(http.DefaultTransport)}).Do(request)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			spans := exporter.GetSpans()
			if !c.request {
				require.Empty(t, spans)
				require.Empty(t, carried)
				return
			}
			require.Len(t, spans, 1)
			require.Equal(t, "HTTP DELETE", spans[0].Name)
			require.Contains(t, carried, spans[0].SpanContext.SpanID().String())
			require.True(t, spans[0].Parent.IsValid())
		})
	}
}
