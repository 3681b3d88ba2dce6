package evictor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// The results of attempts that do not end the eviction; act.Outcome has those that do.
const (
	resultKept    = "kept"
	resultNotDue  = "not_due"
	resultHeld    = "held"
	resultWaiting = "waiting"
	resultFailed  = "failed"
)

// traceAttempt starts the span of an attempt, a trace of its own, unless there is one already, and
// returns the function that ends it. The context carries the span to the functions below, which do
// nothing without one. An attempt of a pod that waits for a rate limit has no span until the pod is
// granted a request: the limit may allow it during the attempt.
func (e *Evictor) traceAttempt(ctx context.Context, goal *target, granted bool) (traced context.Context, end func()) {
	if e.options.Tracer == nil || trace.SpanFromContext(ctx).SpanContext().IsValid() || !granted && e.rates.Waits(goal.pod.Key) {
		return ctx, func() {}
	}
	ctx, span := e.options.Tracer.Start(ctx, "eviction")
	if span.IsRecording() {
		pod := &goal.pod
		span.SetAttributes(
			attribute.String("tollgate.namespace", pod.Namespace),
			attribute.String("tollgate.name", pod.Name),
			attribute.String("tollgate.uid", string(pod.UID)),
			attribute.String("tollgate.node", pod.NodeName),
		)
	}
	return ctx, func() { span.End() }
}

// actTraced calls act in the span of the attempt, which it starts if there is none yet.
func (e *Evictor) actTraced(ctx context.Context, goal *target, pass checks.Pass, held heldReasons) (blocked bool, err error) {
	if _, ok := recording(ctx); ok {
		return e.act(ctx, goal, pass, held)
	}
	ctx, end := e.traceAttempt(ctx, goal, true)
	defer end()
	e.traceCause(ctx, goal)
	return e.act(ctx, goal, pass, held)
}

// recording returns the span of an attempt; false if it is not exported.
func recording(ctx context.Context) (trace.Span, bool) {
	span := trace.SpanFromContext(ctx)
	return span, span.IsRecording()
}

// confirmTraced calls Confirm in a child span.
func (e *Evictor) confirmTraced(ctx context.Context, object tracker.Source, need freshness) ([]tracker.Key, error) {
	if _, ok := recording(ctx); !ok {
		return e.confirm.Confirm(ctx, object, need)
	}
	ctx, span := e.options.Tracer.Start(ctx, "confirm", trace.WithAttributes(
		attribute.String("tollgate.source.kind", string(object.Kind)),
		attribute.String("tollgate.source.name", object.Name),
	))
	defer span.End()
	changed, err := e.confirm.Confirm(ctx, object, need)
	traceFailure(ctx, act.Classify(err))
	return changed, err
}

// traceCause sets the reason of the eviction, and how late it is.
func (e *Evictor) traceCause(ctx context.Context, goal *target) {
	span, ok := recording(ctx)
	if !ok {
		return
	}
	cause, author := goal.cause, goal.cause.Taint.Author()
	span.SetAttributes(
		attribute.String("tollgate.taint", cause.Taint.String()),
		attribute.String("tollgate.source.kind", string(author.Kind)),
		attribute.String("tollgate.source.name", author.Name),
		attribute.String("tollgate.method", string(goal.method(cause))),
		attribute.Float64("tollgate.late_seconds", goal.now.Sub(cause.At).Seconds()),
	)
	if policy := cause.Treatment.Policy; policy != nil {
		span.SetAttributes(attribute.String("tollgate.policy", policy.Name))
	}
}

// traceHold adds an event for a held reason.
func traceHold(ctx context.Context, reason *dueReason, hold *checks.Hold) {
	if span, ok := recording(ctx); ok {
		span.AddEvent(resultHeld, trace.WithAttributes(
			attribute.String("tollgate.reason", string(hold.Reason)),
			attribute.String("tollgate.policy", hold.PolicyName),
			attribute.String("tollgate.taint", reason.Taint.String()),
		))
	}
}

// traceResult sets the result of the attempt.
func traceResult(ctx context.Context, result string) {
	if span, ok := recording(ctx); ok {
		span.SetAttributes(attribute.String("tollgate.result", result))
	}
}

// traceFailure sets the failure of a request. The refusal of a budget is a hold and no failure.
func traceFailure(ctx context.Context, failure act.Failure) {
	if failure == act.NoFailure || failure.Blocked() {
		return
	}
	if span, ok := recording(ctx); ok {
		span.SetAttributes(attribute.String("tollgate.result", resultFailed), attribute.String("tollgate.failure", string(failure)))
		span.SetStatus(codes.Error, string(failure))
	}
}
