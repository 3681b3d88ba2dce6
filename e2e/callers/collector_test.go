package callers

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives OTLP over gRPC from the API server and from Tollgate.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	address string
	server  *grpc.Server

	mu sync.Mutex
	// reviews are the spans of Tollgate, and others the IDs of those of the API server, as
	// "trace/span".
	reviews []reviewSpan
	others  map[string]struct{}
}

// reviewSpan is a span of Tollgate.
type reviewSpan struct {
	id, parent string
	attributes map[string]string
}

// startCollector serves on a free port of this machine.
func startCollector(ctx context.Context) (*collector, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for traces: %w", err)
	}
	c := &collector{address: listener.Addr().String(), server: grpc.NewServer(), others: map[string]struct{}{}}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(listener) }() // It returns when the server is stopped.
	return c, nil
}

// apiServerArgs has the API server trace all requests.
func (c *collector) apiServerArgs(dir string) ([]string, error) {
	file := filepath.Join(dir, "tracing.yaml")
	// It takes what begins with a brace for JSON.
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + c.address + "\nsamplingRatePerMillion: 1000000\n"
	return []string{"--tracing-config-file=" + file}, os.WriteFile(file, []byte(text), 0o600)
}

// Export implements the service of OTLP.
func (c *collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range request.GetResourceSpans() {
		service := attributesOf(from.GetResource().GetAttributes())["service.name"]
		for _, scope := range from.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.take(service, span)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) take(service string, span *tracev1.Span) {
	trace := hex.EncodeToString(span.GetTraceId()) + "/"
	id := trace + hex.EncodeToString(span.GetSpanId())
	if service != "tollgate" {
		c.others[id] = struct{}{}
		return
	}
	c.reviews = append(c.reviews, reviewSpan{
		id: id, parent: trace + hex.EncodeToString(span.GetParentSpanId()), attributes: attributesOf(span.GetAttributes()),
	})
}

func attributesOf(list []*commonv1.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		all[a.GetKey()] = a.GetValue().GetStringValue()
		if _, ok := a.GetValue().GetValue().(*commonv1.AnyValue_IntValue); ok {
			all[a.GetKey()] = strconv.FormatInt(a.GetValue().GetIntValue(), 10)
		}
	}
	return all
}

// of returns the spans of the reviews of an object by its name, and whether the API server has
// sent the span that a review span is below.
func (c *collector) of(name string) (spans []reviewSpan, sent func(id string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.reviews {
		if span.attributes["tollgate.name"] == name {
			spans = append(spans, span)
		}
	}
	return spans, func(id string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.others[id]
		return ok
	}
}
