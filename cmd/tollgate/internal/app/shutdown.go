package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// errShutdown is the readiness error of a replica that shuts down.
var errShutdown = errors.New("it was told to end")

// Extend returns a context that ends one period after shutdownCtx, at once if the period is zero,
// and has its values. The caller must call end, which ends it at any time.
func Extend(shutdownCtx context.Context, period time.Duration, local clock.Clock) (serveCtx context.Context, end context.CancelFunc) {
	serveCtx, cancel := context.WithCancel(context.WithoutCancel(shutdownCtx))
	stop := context.AfterFunc(shutdownCtx, func() {
		defer cancel()
		logr.FromContextOrDiscard(shutdownCtx).Info("told to end, answering reviews for a while longer", "period", period)
		timer := local.NewTimer(period)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-serveCtx.Done():
		}
	})
	return serveCtx, func() {
		stop()
		cancel()
	}
}

// Ready returns a readiness check that fails once shutdownCtx is done.
func Ready(shutdownCtx context.Context) healthz.Checker {
	return func(*http.Request) error {
		if shutdownCtx.Err() != nil {
			return errShutdown
		}
		return nil
	}
}

// Finish returns a handler that calls next with a context that outlives serveCtx:
// controller-runtime derives request contexts from the server's, so its end would cancel all
// reviews in flight. A client that disconnects still cancels its own.
//
// Once shutdownCtx is done, every response has "Connection: close". An API server calls the
// webhooks of a Service by HTTP/1.1 and keeps its connections after the endpoint is removed: one
// could be closed while a review is sent on it, which is not retried.
func Finish(shutdownCtx, serveCtx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shutdownCtx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		ctx, cancel := detach(r.Context(), serveCtx)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// detach returns a context that ends with requestCtx, unless serveCtx ended first.
func detach(requestCtx, serveCtx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(requestCtx))
	stop := context.AfterFunc(requestCtx, func() {
		if serveCtx.Err() == nil {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// Until returns a runnable of every replica that stops work when the manager stops or shutdownCtx
// is done. It returns no error if shutdownCtx caused the end, because an error would stop the
// manager too.
func Until(shutdownCtx context.Context, work manager.Runnable) manager.Runnable {
	return until{func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(shutdownCtx, stop)()
		err := work.Start(ctx)
		if shutdownCtx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}}
}

type until struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (until) NeedLeaderElection() bool { return false }

// Both bound the queue.
const (
	maxLines = 4096
	maxBytes = 4 << 20
)

// NewLost returns the counter of lines that were not written.
func NewLost(registerer prometheus.Registerer) prometheus.Counter {
	return promauto.With(registerer).NewCounter(prometheus.CounterOpts{
		Name: "tollgate_log_lines_lost_total",
		Help: "Lines of the log that were not written, because nobody read it or it could not be written.",
	})
}

// entry is a line, or the end of the log, at which end is closed.
type entry struct {
	line []byte
	end  chan<- struct{}
}

// Sink is a writer whose writes do not block. Lines that exceed the queue are counted as lost. It
// is safe for concurrent use.
type Sink struct {
	out         io.Writer
	lost        prometheus.Counter
	entries     chan entry
	queuedBytes atomic.Int64
	closed      atomic.Bool
}

// NewLogSink returns a Sink that writes to out, one write at a time, until it is closed. It
// starts a goroutine.
func NewLogSink(out io.Writer, lost prometheus.Counter) *Sink {
	s := &Sink{out: out, lost: lost, entries: make(chan entry, maxLines)}
	go s.run()
	return s
}

func (s *Sink) run() {
	for e := range s.entries {
		if e.end != nil {
			close(e.end)
			return
		}
		if _, err := s.out.Write(e.line); err != nil {
			s.lost.Inc()
		}
		s.queuedBytes.Add(-int64(len(e.line)))
	}
}

// Write queues one line or counts it as lost. It never fails.
func (s *Sink) Write(line []byte) (int, error) {
	if s.closed.Load() || !s.enqueue(line) {
		s.lost.Inc()
	}
	return len(line), nil
}

func (s *Sink) enqueue(line []byte) bool {
	size := int64(len(line))
	if s.queuedBytes.Add(size) <= maxBytes {
		select {
		case s.entries <- entry{line: bytes.Clone(line)}:
			return true
		default:
		}
	}
	s.queuedBytes.Add(-size)
	return false
}

// Close returns when the queue is written, or ctx is done. It must be called once.
func (s *Sink) Close(ctx context.Context) {
	s.closed.Store(true)
	written := make(chan struct{})
	select {
	case s.entries <- entry{end: written}:
	case <-ctx.Done():
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}
