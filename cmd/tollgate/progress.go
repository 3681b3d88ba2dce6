package main

import (
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"
)

// progress says on a line that it rewrites how much was read, once that takes long. The nil
// progress says nothing. It is not goroutine-safe.
type progress struct {
	out   io.Writer
	clock clock.PassiveClock
	// next is when there is something to be said.
	next  time.Time
	said  bool
	ended bool
}

// newProgress returns progress for somebody at a terminal, and nil for nobody.
func newProgress(out io.Writer, clk clock.PassiveClock) *progress {
	if !terminal(out) {
		return nil
	}
	return startProgress(out, clk)
}

func startProgress(out io.Writer, clk clock.PassiveClock) *progress {
	const patience = 3 * time.Second
	return &progress{out: out, clock: clk, next: clk.Now().Add(patience)}
}

// tell says how much of something was done.
func (p *progress) tell(count int, of string) {
	if p == nil || p.ended || p.clock.Now().Before(p.next) {
		return
	}
	p.next, p.said = p.clock.Now().Add(time.Second), true
	_, _ = fmt.Fprintf(p.out, "\r%-60s", fmt.Sprintf("%d %s ...", count, of)) // It is no loss.
}

// end leaves an empty line, and says no more.
func (p *progress) end() {
	if p == nil || p.ended {
		return
	}
	p.ended = true
	if p.said {
		_, _ = fmt.Fprintf(p.out, "\r%-60s\r", "")
	}
}

// before returns a writer that ends progress when something is written to it: both may be
// the same terminal.
func (p *progress) before(out io.Writer) io.Writer {
	return &afterProgress{progress: p, out: out}
}

type afterProgress struct {
	progress *progress
	out      io.Writer
}

// Write implements io.Writer.
func (w *afterProgress) Write(data []byte) (int, error) {
	w.progress.end()
	return w.out.Write(data)
}
