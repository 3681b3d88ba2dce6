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

// Progress rewrites one line of a terminal with the number of objects read, from 3 s on. A nil
// Progress writes nothing. It is safe for concurrent use.
type Progress struct {
	out   io.Writer
	clock clock.PassiveClock

	mu sync.Mutex
	// next is the earliest time of the next update.
	next    time.Time
	written bool
	ended   bool
}

// NewProgress returns progress if out is a terminal, else nil.
func NewProgress(out io.Writer, clk clock.PassiveClock) *Progress {
	if !Terminal(out) {
		return nil
	}
	return startProgress(out, clk)
}

func startProgress(out io.Writer, clk clock.PassiveClock) *Progress {
	const delay = 3 * time.Second
	return &Progress{out: out, clock: clk, next: clk.Now().Add(delay)}
}

// Tell reports the count of objects, at most once a second.
func (p *Progress) Tell(count int, of string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.clock.Now().Before(p.next) {
		return
	}
	p.next, p.written = p.clock.Now().Add(time.Second), true
	_, _ = fmt.Fprintf(p.out, "\r%-60s", fmt.Sprintf("%d %s ...", count, of)) // Errors are ignored.
}

// End clears the line and stops updates.
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
	if p.written {
		_, _ = fmt.Fprintf(p.out, "\r%-60s\r", "")
	}
}

// Before returns a writer that ends progress at the first write: both may be the same terminal.
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

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool { return isTerminal(w) }

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) // The null device is a character device too.
}
