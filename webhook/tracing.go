package webhook

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// traceContext reads the header by which the API server continues its trace.
var traceContext = propagation.TraceContext{}

// traced is Review as a span of the trace of the API server, or of one of its own, since start.
// Its attributes are names, numbers and words of closed sets: messages and errors can have texts
// of users.
func (e *Endpoint) traced(ctx context.Context, header http.Header, req *review.Request, start time.Time) (handlers.Result, error) {
	if e.opts.Tracer == nil {
		return e.Review(ctx, req)
	}
	ctx = traceContext.Extract(ctx, propagation.HeaderCarrier(header))
	ctx, span := e.opts.Tracer.Start(ctx, "review", trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	result, err := e.Review(ctx, req)
	if !span.IsRecording() {
		return result, err
	}
	// The request refers to the buffer of its body, and the span lasts longer.
	text := func(key, value string) attribute.KeyValue {
		return attribute.String(key, strings.Clone(review.Clip(value)))
	}
	span.SetAttributes(
		attribute.String("tollgate.endpoint", e.name),
		text("tollgate.resource", e.label(req)),
		text("tollgate.operation", string(req.Operation)),
		text("tollgate.namespace", req.Namespace),
		text("tollgate.name", req.Name),
		text("tollgate.request.uid", string(req.UID)),
	)
	if err != nil {
		span.SetStatus(codes.Error, "no decision could be made")
		return result, err
	}
	span.SetAttributes(
		attribute.String("tollgate.verdict", result.Verdict.String()),
		attribute.Int("tollgate.policies", policiesOf(&result)),
		attribute.Int("tollgate.patch.operations", len(result.Patch)),
	)
	return result, err
}

// policiesOf returns how many policies the findings are of.
func policiesOf(result *handlers.Result) int {
	named := sets.Set[string]{}
	for _, finding := range result.Findings {
		for name := range finding.Policies() {
			named.Insert(name)
		}
	}
	return named.Delete("").Len()
}
