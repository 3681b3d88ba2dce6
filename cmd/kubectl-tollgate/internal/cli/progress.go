package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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

// Terminal reports whether a reader or a writer is a terminal.
func Terminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) // The null device is a character device too.
}

// Colours reports whether output to a writer has colours: on a terminal, unless NO_COLOR is set or
// TERM is dumb.
func Colours(out io.Writer) bool {
	return Terminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Ask writes a question to out, and reports whether the answer from in is yes. The end of the input
// means no. When ctx is done it returns an error, and its goroutine goes on reading.
func Ask(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := fmt.Fprintf(out, "%s [y/N] ", question); err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	var line string
	var err error
	answered := make(chan struct{})
	go func() {
		line, err = bufio.NewReader(in).ReadString('\n')
		close(answered)
	}()
	select {
	case <-ctx.Done():
		return false, fmt.Errorf("ask: %w", ctx.Err())
	case <-answered:
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read the answer: %w", err)
		}
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}
