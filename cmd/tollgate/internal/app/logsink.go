package app

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Both bound the queue.
const (
	maxLines = 4096
	maxBytes = 4 << 20
)

// NewLost returns the counter of lines that were not written.
func NewLost(registerer prometheus.Registerer) prometheus.Counter {
	return promauto.With(registerer).NewCounter(prometheus.CounterOpts{
		Name: "tollgate_log_lines_lost_total",
		Help: "Lines of the log that were lost, because the output was not read or a write failed.",
	})
}

// Sink is a writer whose writes do not block. Lines that exceed the queue are counted as lost. It
// is safe for concurrent use.
type Sink struct {
	out  io.Writer
	lost prometheus.Counter
	// lines end with nil, at which written is closed.
	lines       chan []byte
	written     chan struct{}
	queuedBytes atomic.Int64
	closed      atomic.Bool
}

// NewLogSink returns a Sink that writes to out, one write at a time, until it is closed. It
// starts a goroutine.
func NewLogSink(out io.Writer, lost prometheus.Counter) *Sink {
	s := &Sink{out: out, lost: lost, lines: make(chan []byte, maxLines), written: make(chan struct{})}
	go s.run()
	return s
}

func (s *Sink) run() {
	for line := range s.lines {
		if line == nil {
			close(s.written)
			return
		}
		if _, err := s.out.Write(line); err != nil {
			s.lost.Inc()
		}
		s.queuedBytes.Add(-int64(len(line)))
	}
}

// Write queues one line, which is not nil, or counts it as lost. It never fails.
func (s *Sink) Write(line []byte) (int, error) {
	size := int64(len(line))
	if s.queuedBytes.Add(size) <= maxBytes && !s.closed.Load() {
		select {
		case s.lines <- bytes.Clone(line):
			return len(line), nil
		default:
		}
	}
	s.queuedBytes.Add(-size)
	s.lost.Inc()
	return len(line), nil
}

// Close returns when the queue is written, or ctx is done. It must be called once.
func (s *Sink) Close(ctx context.Context) {
	s.closed.Store(true)
	select {
	case s.lines <- nil:
	case <-ctx.Done():
		return
	}
	select {
	case <-s.written:
	case <-ctx.Done():
	}
}
