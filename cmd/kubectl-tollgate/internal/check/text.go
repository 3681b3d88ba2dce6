package check

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// Style says how a report is written for people.
type Style struct {
	// All says that objects and cases are named too that pass without a word.
	All bool
	// Colours are those of a terminal.
	Colours bool
}

// The colours of verdicts, as terminals know them.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// WriteText writes a report for people, in lines of at most cli.Width where words allow.
// An error is that of the writer.
func (r *Report) WriteText(w io.Writer, style Style) error {
	t := &text{out: bufio.NewWriter(w), style: style}
	for i := range r.Results {
		if result := &r.Results[i]; style.All || result.Verdict != Allowed {
			t.result(result)
		}
	}
	for i := range r.Cases {
		if c := &r.Cases[i]; style.All || c.Failure != "" {
			t.testCase(c)
		}
	}
	t.line(0, r.Summary())
	return t.out.Flush()
}

// WriteNotes writes the notes for people. An error is that of the writer.
func (r *Report) WriteNotes(w io.Writer) error {
	t := &text{out: bufio.NewWriter(w)}
	for _, note := range r.Notes {
		t.line(0, "note: "+note)
	}
	return t.out.Flush()
}

type text struct {
	out   *bufio.Writer
	style Style
}

func (t *text) result(result *Result) {
	at := ""
	if result.Position.File != "" {
		at = result.Position.String() + ": "
	}
	_, _ = fmt.Fprintf(t.out, "%s%s: %s\n", at, result, t.coloured(string(result.Verdict), colourOf(result.Verdict)))
	t.said(result)
}

// said writes what is said of an object.
func (t *text) said(result *Result) {
	for i := range result.Findings {
		t.finding(&result.Findings[i])
	}
	for _, warning := range result.Warnings {
		t.line(2, "warning: "+warning)
	}
	if result.Verdict == Undecided {
		t.line(2, result.Message)
	}
}

func (t *text) finding(f *Finding) {
	head := f.Field
	if f.Policy != "" {
		head = f.Policy + ": " + head
	}
	switch {
	case f.Denies():
	case f.Warns():
		head = "warning: " + head
	default:
		head = "audit: " + head
	}
	t.line(2, head)
	t.line(4, f.Message())
}

func (t *text) testCase(c *ReportedCase) {
	verdict, colour := "passed", green
	if c.Failure != "" {
		verdict, colour = "failed", red
	}
	_, _ = fmt.Fprintf(t.out, "%s: %s: %s: %s\n", c.Position, c.Test, c.Name, t.coloured(verdict, colour))
	if c.Failure == "" {
		return
	}
	t.line(2, c.Failure)
	t.said(&c.Result)
}

func (t *text) coloured(words, colour string) string {
	if !t.style.Colours {
		return words
	}
	return colour + words + plain
}

func colourOf(verdict Verdict) string {
	switch verdict {
	case Denied, Undecided:
		return red
	case Warned:
		return yellow
	case Allowed:
		return green
	default:
		return plain
	}
}

// line writes words on as many lines as they need, indented.
func (t *text) line(indent int, words string) {
	const further = 2
	width := 0
	for i, word := range strings.Fields(words) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			_, _ = t.out.WriteString(strings.Repeat(" ", indent))
			width = indent
		case width+1+length > cli.Width:
			_, _ = t.out.WriteString("\n" + strings.Repeat(" ", indent+further))
			width = indent + further
		default:
			_ = t.out.WriteByte(' ')
			width++
		}
		_, _ = t.out.WriteString(word)
		width += length
	}
	_ = t.out.WriteByte('\n') // Flush tells.
}
