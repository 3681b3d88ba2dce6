package app

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

// flushTimeout bounds how long a terminating process waits for the collector.
const flushTimeout = 5 * time.Second

// newTracer returns the tracer of reviews and evictions, and the function that sends what is left and stops it.
// The tracer is nil if tracing is not enabled. A collector that does not answer loses spans and
// delays nothing.
func newTracer(ctx context.Context, config *configv1alpha1.TracingConfiguration) (trace.Tracer, func(), error) {
	if !config.Enabled {
		return nil, func() {}, nil
	}
	attributes := []attribute.KeyValue{
		attribute.String("service.name", "tollgate"), attribute.String("service.version", settings.Version()),
	}
	if host, err := os.Hostname(); err == nil {
		attributes = append(attributes, attribute.String("service.instance.id", host)) // the name of the pod
	}
	provider, err := tracing.NewProvider(ctx, &tracingapi.TracingConfiguration{
		Endpoint: &config.Endpoint, SamplingRatePerMillion: &config.SamplingRatePerMillion,
	}, nil, []resource.Option{resource.WithAttributes(attributes...)})
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	// The SDK has one handler for each process, and calls it for each failed attempt.
	log, some := logr.FromContextOrDiscard(ctx), rate.Sometimes{First: 1, Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		some.Do(func() { log.Error(err, "traces are lost", "endpoint", config.Endpoint) })
	}))
	return provider.Tracer("github.com/tollgate-dev/tollgate"), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Error(err, "the last traces are lost", "endpoint", config.Endpoint)
		}
	}, nil
}

// traceRequests adds a span of each request that is made for a traced review or eviction, and sends its
// context to the API server. All other requests stay as they are.
func traceRequests(next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(next, otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithFilter(func(request *http.Request) bool {
		return trace.SpanContextFromContext(request.Context()).IsSampled()
	}))
}
