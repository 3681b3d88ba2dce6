package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNobodyToAsk means that a confirmation is required but the input is no terminal.
var ErrNobodyToAsk = errors.New("nobody can be asked, since the input is no terminal: give --yes")

// Answers reports whether in is a terminal.
func Answers(in io.Reader) bool {
	return isTerminal(in)
}

// Confirm writes a question to out, and reports whether the answer from in is yes. Without a
// terminal the error is ErrNobodyToAsk.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	if !Answers(in) {
		return false, ErrNobodyToAsk
	}
	return Ask(ctx, in, out, question)
}

// Ask is Confirm for an input that is known to answer. The end of the input means no. When ctx is
// done it returns an error, and its goroutine goes on reading.
func Ask(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := fmt.Fprintf(out, "%s [y/N] ", question); err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return false, fmt.Errorf("ask: %w", ctx.Err())
	case reply := <-answers:
		if reply.err != nil && !errors.Is(reply.err, io.EOF) {
			return false, fmt.Errorf("read the answer: %w", reply.err)
		}
		line := strings.ToLower(strings.TrimSpace(reply.line))
		return line == "y" || line == "yes", nil
	}
}
