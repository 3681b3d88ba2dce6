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
