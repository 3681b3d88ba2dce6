package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

// Progress says on a line that it rewrites how much was read, once that takes long. The nil
// Progress says nothing. It is goroutine-safe.
type Progress struct {
	out   io.Writer
	clock clock.PassiveClock

	mu sync.Mutex
	// next is when there is something to be said.
	next  time.Time
	said  bool
	ended bool
}

// NewProgress returns progress for somebody at a terminal, and nil for nobody.
func NewProgress(out io.Writer, clk clock.PassiveClock) *Progress {
	if !Terminal(out) {
		return nil
	}
	return startProgress(out, clk)
}

func startProgress(out io.Writer, clk clock.PassiveClock) *Progress {
	const patience = 3 * time.Second
	return &Progress{out: out, clock: clk, next: clk.Now().Add(patience)}
}

// Tell says how much of something was done.
func (p *Progress) Tell(count int, of string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.clock.Now().Before(p.next) {
		return
	}
	p.next, p.said = p.clock.Now().Add(time.Second), true
	_, _ = fmt.Fprintf(p.out, "\r%-60s", fmt.Sprintf("%d %s ...", count, of)) // It is no loss.
}

// End leaves an empty line, and says no more.
func (p *Progress) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	if p.said {
		_, _ = fmt.Fprintf(p.out, "\r%-60s\r", "")
	}
}

// Before returns a writer that ends progress when something is written to it: both may be
// the same terminal.
func (p *Progress) Before(out io.Writer) io.Writer {
	return &afterProgress{progress: p, out: out}
}

type afterProgress struct {
	progress *Progress
	out      io.Writer
}

// Write implements io.Writer.
func (w *afterProgress) Write(data []byte) (int, error) {
	w.progress.End()
	return w.out.Write(data)
}

// Terminal reports whether somebody looks at what is written.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) // The null device has characters, too.
}
