package webhook

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// The paths that the webhook configurations in deploy/webhooks call.
const (
	PathMutate   = "/mutate"
	PathValidate = "/validate"
)

// The names of the endpoints, in metrics and in the configuration of callers.
const (
	EndpointMutate   = "mutate"
	EndpointValidate = "validate"
)

// Errors are logged at this rate; the metrics count all of them.
const (
	logsPerSecond = 10
	logsAtOnce    = 100
)

// writeTimeout bounds how long a client may take to read an answer. The API server reads at
// once, and waits for the whole review no longer than the timeout of the webhook.
const writeTimeout = 2 * time.Second

// Options configure an endpoint.
type Options struct {
	// Clock is this machine's: connections obey it, and durations are measured by
	// it.
	Clock clock.PassiveClock
	// Metrics counts requests and their verdicts.
	Metrics *Metrics
	// Budget is how long one review may take, from its header on; the timeout that the
	// API server announces can only shorten it.
	Budget time.Duration
	// Bodies bounds the bodies that are judged at the same time, on all endpoints
	// that share it.
	Bodies *Bodies
	// Callers identifies the callers; nil accepts every client that reaches the port.
	Callers *auth.Callers
	// Tracer makes a span of each review; nil makes none.
	Tracer trace.Tracer
}

// Config is the configuration of an endpoint and of its handlers.
type Config struct {
	Options

	Handlers handlers.Config
}

// Endpoint serves AdmissionReviews on one path. It is safe for concurrent use.
type Endpoint struct {
	// logs bounds how many errors are logged: any client that reaches the port could fill
	// the log with them.
	logs *rate.Limiter

	name     string
	opts     Options
	handlers map[handlers.Resource]handlers.Handler
}

// Mutate returns the endpoint that fills in missing fields.
func Mutate(c Config) *Endpoint {
	return newEndpoint(EndpointMutate, c.Options, handlers.Mutating(c.Handlers))
}

// Validate returns the endpoint that refuses.
func Validate(c Config) *Endpoint {
	return newEndpoint(EndpointValidate, c.Options, handlers.Validating(c.Handlers))
}

// newEndpoint returns an endpoint with its handlers. Name stands in metrics, and in the configuration
// of callers.
func newEndpoint(name string, opts Options, byResource map[handlers.Resource]handlers.Handler) *Endpoint {
	return &Endpoint{logs: rate.NewLimiter(logsPerSecond, logsAtOnce), name: name, opts: opts, handlers: byResource}
}

// Review decides about a request of the API server, or of this process. An error means that
// no decision could be made.
func (e *Endpoint) Review(ctx context.Context, req *review.Request) (handlers.Result, error) {
	resource := resourceOf(req)
	handle, ok := e.handlers[resource]
	if !ok {
		return handlers.Result{}, &review.BadError{Err: errors.New("this path does not judge " + describe(req))}
	}
	if versions := resource.Versions(); !slices.Contains(versions, req.Resource.Version) {
		return handlers.Result{}, &review.BadError{Err: fmt.Errorf("request.resource.version of %s is %q, want %s",
			describe(req), review.Clip(req.Resource.Version), strings.Join(versions, " or "))}
	}
	result, err := handle(auth.InNamespace(ctx, req.Namespace), req)
	if err == nil {
		// A verdict that came too late is none: the API server no longer waits.
		err = ctx.Err()
	}
	if err != nil {
		return handlers.Result{}, err
	}
	return result, nil
}

func resourceOf(req *review.Request) handlers.Resource {
	return handlers.Resource{Group: req.Resource.Group, Name: req.Resource.Resource, Subresource: req.SubResource}
}

// ServeHTTP answers one review.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	log := logr.FromContextOrDiscard(r.Context())
	defer func() {
		if cause := recover(); cause != nil {
			e.opts.Metrics.panics.Inc()
			log.Error(nil, "panic while judging a review", "panic", cause, "stack", string(debug.Stack()))
			e.fail("internal error")(w)
		}
	}()
	if len(r.TransferEncoding) > 0 {
		// It may have come with a length too, which net/http takes away, and hide another request
		// behind it: RFC 9112 lets the connection not be used again (A06).
		w.Header().Set("Connection", "close")
	}
	// The API server counts from here too, and keys of callers may have to be waited for.
	start := e.opts.Clock.Now()
	ctx, cancel := context.WithTimeout(r.Context(), allowedTime(timeoutIn(r.URL.RawQuery), e.opts.Budget))
	defer cancel()
	// Before all else: an unknown caller learns nothing, and costs nothing.
	visit, known := e.opts.Callers.Identify(r.WithContext(ctx), e.name)
	if !known {
		e.refuseCaller(w)
		return
	}
	if refused := checkHeader(r); refused != nil {
		e.refuse(w, refused)
		return
	}
	reader := review.NewReader()
	body, taken, refused := readBody(w, r, e.opts.Bodies, readUntil(ctx, start), reader.Buffer)
	if refused != nil {
		e.refuse(w, refused)
		return
	}
	// A panic releases the room too, and leaves the reader to the garbage collector.
	defer taken.release()
	req, err := reader.Read(body)
	if err != nil {
		e.refuse(w, &refusal{http.StatusBadRequest, err.Error()})
		return
	}
	if !visit.MaySend(ctx, req.Resource.Group) {
		e.refuseCaller(w)
		return
	}
	// No answer depends on reviews of pods.
	req.Unproven = req.Resource.Resource != "pods" && !visit.Proven(req.Resource.Group)
	send := e.answer(ctx, r.Header, req, start)
	reader.Close()
	// A client that reads its answer slowly does not hold the room of its body.
	taken.release()
	send(w)
}

// answer decides about a request and returns the function that writes the response, which does
// not refer to the body.
func (e *Endpoint) answer(ctx context.Context, header http.Header, req *review.Request, start time.Time) func(http.ResponseWriter) {
	result, err := e.traced(ctx, header, req, start)
	e.opts.Metrics.observe(e.name, e.label(req), req, &result, err, e.opts.Clock.Since(start))
	if bad, ok := errors.AsType[*review.BadError](err); ok {
		return func(w http.ResponseWriter) { e.refuse(w, &refusal{http.StatusBadRequest, bad.Error()}) }
	}
	if err != nil {
		if e.logs.AllowN(e.opts.Clock.Now(), 1) {
			logr.FromContextOrDiscard(ctx).Error(err, "no decision on a review", "resource", req.Resource.Resource,
				"namespace", req.Namespace, "name", req.Name, "requestUID", req.UID)
		}
		return e.fail("no decision could be made" + textOfUndecided(err))
	}
	encoded, err := encodeReview(req, &result)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "answer a review", "requestUID", req.UID)
		return e.fail("internal error")
	}
	return func(w http.ResponseWriter) {
		e.boundWrite(w, writeTimeout)
		w.Header().Set("Content-Type", "application/json")
		// The client is gone when this fails.
		_, _ = w.Write(encoded) //nolint:gosec // It is JSON, and nothing of the header is in it.
	}
}

// textOfUndecided returns the reason for the lack of a decision, for the client: what it can
// change itself, and nothing of the cluster.
func textOfUndecided(err error) string {
	if busy, ok := errors.AsType[*auth.BusyError](err); ok {
		return ": " + busy.Error()
	}
	if busy, ok := errors.AsType[*cel.BusyError](err); ok {
		return ": " + busy.Error()
	}
	if undecided, ok := errors.AsType[*handlers.UndecidedError](err); ok {
		return ": " + undecided.Error()
	}
	return ", see the log of Tollgate"
}

// fail returns the function that writes a fault of Tollgate.
func (e *Endpoint) fail(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		e.boundWrite(w, writeTimeout)
		http.Error(w, text, http.StatusInternalServerError)
	}
}

// boundWrite ends the connection, or the stream of HTTP/2, of a client that has not read its
// answer by then (A05). A server without deadlines, as a recorder in a test, ignores it.
func (e *Endpoint) boundWrite(w http.ResponseWriter, within time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(e.opts.Clock.Now().Add(within))
}

// label names a resource in metrics. Resources without a handler share one name: any client
// that reaches the port can send reviews of resources with any name (F14).
func (e *Endpoint) label(req *review.Request) string {
	if _, handled := e.handlers[resourceOf(req)]; !handled {
		return "other"
	}
	return nameOf(req)
}

func nameOf(req *review.Request) string {
	if req.SubResource == "" {
		return req.Resource.Resource
	}
	return req.Resource.Resource + "/" + req.SubResource
}

func describe(req *review.Request) string {
	name := review.Clip(nameOf(req))
	if req.Resource.Group != "" {
		name += "." + review.Clip(req.Resource.Group)
	}
	return name
}

// refuse counts a refusal and answers with it.
func (e *Endpoint) refuse(w http.ResponseWriter, refused *refusal) {
	wait := writeTimeout
	if refused != errBodyLate {
		// The server reads the rest of a body before it goes on, however slowly that comes, and
		// writes the answer after that.
		_ = http.NewResponseController(w).SetReadDeadline(e.opts.Clock.Now().Add(bodyTimeout))
		wait += bodyTimeout
	}
	e.boundWrite(w, wait)
	e.opts.Metrics.refused(e.name, refused.status)
	if refused == errBusy {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, refused.text, refused.status)
}

// refuseCaller answers a caller that is not known, or not for this review. The answer is the
// same whatever was wrong.
func (e *Endpoint) refuseCaller(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	e.refuse(w, &refusal{http.StatusUnauthorized, "unauthorized"})
}

// checkHeader checks a request by its header alone. Without a refusal, the body is worth reading.
func checkHeader(r *http.Request) *refusal {
	if r.Method != http.MethodPost {
		return &refusal{http.StatusMethodNotAllowed, "send an AdmissionReview with POST"}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return &refusal{http.StatusUnsupportedMediaType, "compressed bodies are not read"}
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || media != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return &refusal{http.StatusUnsupportedMediaType, "Content-Type must be application/json in UTF-8"}
	}
	return nil
}

// readUntil is when the body of a review that began at start must be there. After the budget
// no verdict is of use, and its room is for others.
func readUntil(ctx context.Context, start time.Time) time.Time {
	until := start.Add(bodyTimeout)
	if end, bounded := ctx.Deadline(); bounded && end.Before(until) {
		until = end
	}
	return until
}

// hintMargin is left of the API server's timeout for the way back.
const hintMargin = 500 * time.Millisecond

// timeoutIn returns the parameter by which the API server announces how long it waits: no escapes are
// needed for it.
func timeoutIn(query string) string {
	for parameter := range strings.SplitSeq(query, "&") {
		if hint, ok := strings.CutPrefix(parameter, "timeout="); ok {
			return hint
		}
	}
	return ""
}

// allowedTime returns how long a review may take: the budget, or less where the
// API server announces (in whole seconds, rounded up) that it will not wait that
// long. A hint that makes no sense is as good as none.
func allowedTime(hint string, budget time.Duration) time.Duration {
	const longest = 30 * time.Second // the API's own bound of timeoutSeconds
	wait, err := time.ParseDuration(hint)
	if err != nil || wait <= hintMargin || wait > longest {
		return budget
	}
	return min(wait-hintMargin, budget)
}
