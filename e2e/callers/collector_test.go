package callers

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	// spans are those of Tollgate, and others those of the API server by their IDs, as
	// "trace/span".
	spans  []span
	others map[string]span
}

// span is a span of Tollgate or of the API server.
type span struct {
	name, id, parent string
	// links are the IDs of spans of other traces.
	links      []string
	attributes map[string]string
}

// startCollector serves on a free port of this machine.
func startCollector(ctx context.Context) (*collector, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for traces: %w", err)
	}
	c := &collector{address: listener.Addr().String(), server: grpc.NewServer(), others: map[string]span{}}
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

func (c *collector) take(service string, sent *tracev1.Span) {
	id := func(trace, span []byte) string { return hex.EncodeToString(trace) + "/" + hex.EncodeToString(span) }
	taken := span{
		name: sent.GetName(), id: id(sent.GetTraceId(), sent.GetSpanId()), parent: id(sent.GetTraceId(), sent.GetParentSpanId()),
		attributes: attributesOf(sent.GetAttributes()),
	}
	for _, link := range sent.GetLinks() {
		taken.links = append(taken.links, id(link.GetTraceId(), link.GetSpanId()))
	}
	if service != "tollgate" {
		c.others[taken.id] = taken
		return
	}
	c.spans = append(c.spans, taken)
}

func attributesOf(list []*commonv1.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		all[a.GetKey()] = a.GetValue().GetStringValue()
		if _, ok := a.GetValue().GetValue().(*commonv1.AnyValue_IntValue); ok {
			all[a.GetKey()] = strconv.FormatInt(a.GetValue().GetIntValue(), 10)
		}
		if _, ok := a.GetValue().GetValue().(*commonv1.AnyValue_DoubleValue); ok {
			all[a.GetKey()] = strconv.FormatFloat(a.GetValue().GetDoubleValue(), 'g', -1, 64)
		}
	}
	return all
}

// of returns the spans of that kind, "review" or "eviction", of an object by its name.
func (c *collector) of(kind, object string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s span) bool { return s.name != kind || s.attributes["tollgate.name"] != object })
}

// below returns the spans of Tollgate below another.
func (c *collector) below(parent string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s span) bool { return s.parent != parent })
}

// sent reports whether the API server has sent a span.
func (c *collector) sent(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.others[id]
	return ok
}

// linked returns the span of the API server that has a link to a span of Tollgate.
func (c *collector) linked(id string) (span, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.others {
		if slices.Contains(other.links, id) {
			return other, true
		}
	}
	return span{}, false
}
