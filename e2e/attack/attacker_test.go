package attack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// attackerAddress is another address of this machine than that of the API server.
	attackerAddress = "127.0.0.2"
	// What the attacker holds open, and how much it asks.
	openStreams        = 200
	halfHeaders        = 200
	questionsPerSecond = 60
	// pause is after what the server has ended, so that the attacker does not only connect.
	pause = 100 * time.Millisecond
	// spacing is between the first of what the attacker holds.
	spacing = 10 * time.Millisecond
)

// attack is what the attacker does, until it is stopped.
type attack struct {
	roots   *x509.CertPool
	halt    context.CancelFunc
	running sync.WaitGroup

	// streams and headers are those that are held at present, and mostStreams and mostHeaders
	// the most at one time.
	streams, headers         atomic.Int64
	mostStreams, mostHeaders atomic.Int64
	// asked are the reviews that lead to questions; refused of them had a verdict, and
	// undecided were told that there is none.
	asked, refused, undecided atomic.Int64
}

func newAttack(t *testing.T, roots *x509.CertPool) *attack {
	t.Helper()
	a := &attack{roots: roots, halt: func() {}}
	t.Cleanup(a.stop)
	return a
}

// start begins the attack, or begins it anew.
func (a *attack) start(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, a.halt = context.WithCancel(t.Context())
	streams := transport(a.roots, attackerAddress)
	client := &http.Client{Transport: streams}
	for i := range openStreams {
		a.again(ctx, i, func() { a.holdStream(ctx, client) })
	}
	for i := range halfHeaders {
		a.again(ctx, i, func() { a.sendHalfAHeader(ctx, a.roots) })
	}
	asking := newCaller(a.roots, attackerAddress)
	a.running.Go(func() {
		every(ctx, time.Hour, questionsPerSecond, func() {
			body := review(greedy, fmt.Sprintf("account-%d", a.asked.Add(1)), taintKey)
			a.running.Go(func() { a.ask(ctx, asking, body) })
		})
	})
	context.AfterFunc(ctx, streams.CloseIdleConnections)
}

// stop ends the attack, and returns when nothing of it is left.
func (a *attack) stop() {
	a.halt()
	a.running.Wait()
}

// again does something over and over, beginning so many spacings from now: the attacker shares
// processors with those who are measured, and must not slow them down by what it does itself.
func (a *attack) again(ctx context.Context, spacings int, do func()) {
	a.running.Go(func() {
		for wait := time.Duration(spacings) * spacing; ctx.Err() == nil; wait = pause {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				do()
			}
		}
	})
}

// endless is a body that begins and does not go on.
type endless struct {
	begin io.Reader
	done  <-chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	if n, _ := e.begin.Read(p); n > 0 {
		return n, nil
	}
	<-e.done
	return 0, io.ErrUnexpectedEOF
}

// holdStream sends a review of which the end does not come, and returns when the server has
// ended the stream.
func (a *attack) holdStream(ctx context.Context, client *http.Client) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := &endless{begin: strings.NewReader(`{"apiVersion":"admission.k8s.io/v1",`), done: ctx.Done()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, tollgate.WebhookURL+"/validate?timeout=30s", body)
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	raise(&a.mostStreams, a.streams.Add(1))
	defer a.streams.Add(-1)
	response, err := client.Do(request)
	if err != nil {
		return
	}
	_ = response.Body.Close()
}

// sendHalfAHeader begins a request over HTTP/1.1, and returns when the server has ended the
// connection.
func (a *attack) sendHalfAHeader(ctx context.Context, roots *x509.CertPool) {
	dialer := tls.Dialer{NetDialer: dialer(attackerAddress), Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(tollgate.WebhookURL, "https://"))
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /validate HTTP/1.1\r\nHost: tollgate\r\nX-Half: "); err != nil {
		return
	}
	raise(&a.mostHeaders, a.headers.Add(1))
	defer a.headers.Add(-1)
	_, _ = io.Copy(io.Discard, conn)
}

func (a *attack) ask(ctx context.Context, c *caller, body []byte) {
	switch _, err := c.ask(ctx, body); {
	case err == nil:
		a.refused.Add(1)
	case strings.Contains(err.Error(), "no decision could be made"):
		a.undecided.Add(1)
	}
}

// raise sets most to n if that is more.
func raise(most *atomic.Int64, n int64) {
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}

// requireFierce fails if the attack was less than it was meant to be.
func (a *attack) requireFierce(t *testing.T, lasts time.Duration) {
	t.Helper()
	// Those that the server has ended are opened again, a moment later.
	require.GreaterOrEqual(t, a.mostStreams.Load(), int64(openStreams/2), "streams")
	require.GreaterOrEqual(t, a.mostHeaders.Load(), int64(halfHeaders/2), "half headers")
	require.GreaterOrEqual(t, a.asked.Load(), int64(lasts.Seconds()*questionsPerSecond/2), "questions")
}

// String says what the attacker did.
func (a *attack) String() string {
	return fmt.Sprintf("%d streams and %d half headers at most, %d questions: %d refused, %d without a decision, %d without an answer",
		a.mostStreams.Load(), a.mostHeaders.Load(), a.asked.Load(), a.refused.Load(), a.undecided.Load(),
		a.asked.Load()-a.refused.Load()-a.undecided.Load())
}
