package faultproxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// errLost ends an exchange whose answer the client does not get.
var errLost = errors.New("the answer is lost")

// exchange is one request and what becomes of it.
type exchange struct {
	info  *request.RequestInfo
	fault Fault
	write *Write          // nil for what only reads
	gone  <-chan struct{} // closed when the client does not wait any more
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// handler serves the client.
type handler struct {
	proxy   *Proxy
	forward *httputil.ReverseProxy
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := h.proxy.infos.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := &exchange{info: info, fault: h.proxy.hits(info), gone: r.Context().Done()}
	if writes(r.Method) {
		e.write, err = h.proxy.begin(r, info)
		if err != nil {
			panic(http.ErrAbortHandler) // the client has gone before it had said all
		}
		defer h.proxy.record(e.write)
	}
	h.serve(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)), e)
}

// serve carries out the faults that come before the API server is asked. It panics
// with http.ErrAbortHandler where the client is to hear nothing.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, e *exchange) {
	if !pause(e.gone, e.fault.Delay) {
		panic(http.ErrAbortHandler)
	}
	if e.fault.Lose == LoseRequest {
		e.linger()
		panic(http.ErrAbortHandler)
	}
	if e.fault.Status != 0 {
		h.refuse(w, e)
		return
	}
	if e.write == nil {
		h.forward.ServeHTTP(w, r)
		return
	}
	// What becomes of a write is known even if the client gives up meanwhile.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	e.write.Forwarded = time.Now()
	h.forward.ServeHTTP(w, r.WithContext(ctx))
}

// linger keeps a client waiting that is to hear nothing.
func (e *exchange) linger() {
	if !e.fault.Silent {
		return
	}
	select {
	case <-e.gone:
	case <-e.fault.over:
	}
}

// pause reports whether the client still waits after a delay.
func pause(gone <-chan struct{}, delay time.Duration) bool {
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-gone:
		return false
	case <-timer.C:
		return true
	}
}

// refuse answers as the API server does when it cannot.
func (h *handler) refuse(w http.ResponseWriter, e *exchange) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(e.fault.Status), //nolint:gosec // An HTTP status.
		Reason: reasons[e.fault.Status], Message: "injected: " + http.StatusText(e.fault.Status),
	}
	if seconds := int(e.fault.RetryAfter / time.Second); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)} //nolint:gosec // A few seconds.
	}
	w.Header().Set("Content-Type", "application/json")
	h.proxy.date(w.Header(), time.Now())
	w.WriteHeader(e.fault.Status)
	_ = json.NewEncoder(w).Encode(status) // a client that has gone needs none
	if e.write != nil {
		e.write.Given = e.fault.Status
	}
}

// reasons are those that the API server gives with a status.
var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// answered carries out the faults that come after the API server has answered. It is
// the ModifyResponse of the reverse proxy: an error ends the exchange.
func (p *Proxy) answered(response *http.Response) error {
	e := exchangeOf(response.Request.Context())
	if e.write != nil {
		e.write.Answered, e.write.Status = time.Now(), response.StatusCode
		e.write.AuditID = response.Header.Get("Audit-Id")
	}
	if !pause(e.gone, e.fault.DelayAnswer) {
		return errLost
	}
	if e.fault.Lose == LoseAnswer {
		e.linger()
		return errLost
	}
	// After the delay, as for an answer that the API server gave then: a client
	// knows how long it waited.
	p.redate(response.Header)
	if e.info.Verb == "watch" {
		response.Body = p.gates.stream(e.info, response.Body, e.gone)
	}
	if e.fault.Truncate > 0 {
		response.ContentLength = -1
		response.Header.Del("Content-Length")
		response.Body = &cut{ReadCloser: response.Body, left: e.fault.Truncate}
	}
	if e.write != nil {
		e.write.Given = response.StatusCode
	}
	return nil
}

// cut breaks off a body.
type cut struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (c *cut) Read(into []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if int64(len(into)) > c.left {
		into = into[:c.left]
	}
	n, err := c.ReadCloser.Read(into)
	c.left -= int64(n)
	return n, err
}

// redate shifts the date that an answer bears.
func (p *Proxy) redate(header http.Header) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return // it bears none
	}
	p.date(header, at)
}

func (p *Proxy) date(header http.Header, at time.Time) {
	header.Set("Date", at.Add(p.Offset()).UTC().Format(http.TimeFormat))
}
