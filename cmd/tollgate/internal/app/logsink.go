package app

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// What waits to be written is bounded by both.
const (
	maxLines = 4096
	maxBytes = 4 << 20
)

// NewLost returns the counter of lines that were not written.
func NewLost(registerer prometheus.Registerer) prometheus.Counter {
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tollgate_log_lines_lost_total",
		Help: "Lines of the log that were not written, because nobody read it or it could not be written.",
	})
	registerer.MustRegister(lost)
	return lost
}

// entry is a line, or the end of the log, which is told by closing end.
type entry struct {
	line []byte
	end  chan<- struct{}
}

// Sink is a writer whose writes return at once. What it cannot hold is counted as lost.
// It is safe for concurrent use.
type Sink struct {
	to      io.Writer
	lost    prometheus.Counter
	entries chan entry
	waiting atomic.Int64 // bytes
	closed  atomic.Bool
}

// NewLogSink returns a Sink that writes to another writer, one write at a time, until it is
// closed.
func NewLogSink(to io.Writer, lost prometheus.Counter) *Sink {
	s := &Sink{to: to, lost: lost, entries: make(chan entry, maxLines)}
	go s.run()
	return s
}

func (s *Sink) run() {
	for e := range s.entries {
		if e.end != nil {
			close(e.end)
			return
		}
		if _, err := s.to.Write(e.line); err != nil {
			s.lost.Inc()
		}
		s.waiting.Add(-int64(len(e.line)))
	}
}

// Write takes one line, which is written later or counted as lost. It never fails.
func (s *Sink) Write(line []byte) (int, error) {
	if s.closed.Load() || !s.take(line) {
		s.lost.Inc()
	}
	return len(line), nil
}

func (s *Sink) take(line []byte) bool {
	size := int64(len(line))
	if s.waiting.Add(size) <= maxBytes {
		select {
		case s.entries <- entry{line: bytes.Clone(line)}:
			return true
		default:
		}
	}
	s.waiting.Add(-size)
	return false
}

// Close returns when all that was taken is written, or ctx is done. It is called once.
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
