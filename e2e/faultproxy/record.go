package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Write is a request that may change something, and what became of it. Times are of
// this machine.
type Write struct {
	// Replica is the client.
	Replica string
	// Method and Path are those of the request, the query included.
	Method, Path string
	// Verb, Resource, Subresource, Namespace and Name are what the path says.
	Verb, Resource, Subresource, Namespace, Name string
	// Body is what was sent, as ContentType says.
	Body        []byte
	ContentType string
	// Sent is when the client had said all. Forwarded is when the API server was
	// asked; zero when it never was. Answered is when it had answered; zero when it
	// never did, as for a client that gave up: then the request may have been
	// carried out, or may be later.
	Sent, Forwarded, Answered time.Time
	// Status is what the API server answered, Given what the client was told; zero
	// is nothing.
	Status, Given int
	// AuditID is that of the API server's answer.
	AuditID string
	// Offset is how far the dates of answers were ahead when the request came.
	Offset time.Duration
}

func writes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// begin reads a write whole, so that it can be recorded, and leaves it to be read.
func (p *Proxy) begin(r *http.Request, info *request.RequestInfo) (*Write, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return &Write{
		Replica: p.options.Replica, Method: r.Method, Path: r.URL.RequestURI(),
		Verb: info.Verb, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		Body: body, ContentType: r.Header.Get("Content-Type"),
		Sent: time.Now(), Offset: p.Offset(),
	}, nil
}

func (p *Proxy) record(write *Write) {
	if p.options.Record != nil {
		p.options.Record(*write)
	}
}
