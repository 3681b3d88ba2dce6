package explain

import (
	"bufio"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// page is an explanation as text: the answer, and then sections of tables and facts. Lines that
// are not wide have at most cli.Width characters.
type page struct {
	out  *bufio.Writer
	wide bool
	now  time.Time
	err  error
}

// writePage writes an answer and the sections of rest.
func writePage(w io.Writer, wide bool, now time.Time, answer string, rest func(*page)) error {
	p := &page{out: bufio.NewWriter(w), wide: wide, now: now}
	p.paragraph("", answer)
	rest(p)
	if p.err != nil {
		return p.err
	}
	return p.out.Flush()
}

// paragraph writes text after first, by which the lines below are indented.
func (p *page) paragraph(first, text string) {
	indent := strings.Repeat(" ", len(first))
	line := first
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == first || line == indent:
			line += word
		case !p.wide && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > cli.Width:
			p.line(line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	p.line(line)
}

func (p *page) line(text string) { _, _ = p.out.WriteString(cli.Clean(text) + "\n") } // Flush returns the error.

// fact writes a name and a value, and nothing without a value.
func (p *page) fact(name, value string) {
	const place = 14
	if value != "" {
		p.paragraph(name+":"+strings.Repeat(" ", max(place-len(name), 1)), value)
	}
}

// item writes text about a subject.
func (p *page) item(of, text string) {
	const indent = "    "
	first := of + ": "
	if p.wide || utf8.RuneCountInString(first)+utf8.RuneCountInString(text) <= cli.Width {
		p.line(first + strings.Join(strings.Fields(text), " "))
		return
	}
	p.line(of + ":")
	p.paragraph(indent, text)
}

// section begins a section.
func (p *page) section(title string) {
	p.line("")
	p.line(title)
}

// table writes a section with a row for each item, and nothing without items. Empty columns are
// left out.
func table[T any](p *page, title string, head []string, items []T, row func(*T) []string) {
	if len(items) == 0 {
		return
	}
	rows := make([][]string, len(items))
	filled := make([]bool, len(head))
	for i := range items {
		rows[i] = row(&items[i])
		for at, cell := range rows[i] {
			filled[at] = filled[at] || cell != ""
		}
	}
	pick := func(row []string, empty string) []string {
		var picked []string
		for at, cell := range row {
			if cell == "" {
				cell = empty
			}
			if filled[at] {
				picked = append(picked, cell)
			}
		}
		return picked
	}
	for i := range rows {
		rows[i] = pick(rows[i], cli.None)
	}
	p.section(title)
	if err := cli.Write(p.out, p.wide, pick(head, ""), rows); err != nil && p.err == nil {
		p.err = err
	}
}

// when returns a relative time and, in a wide page, the time.
func (p *page) when(at *metav1.Time) string {
	switch {
	case at == nil:
		return ""
	case p.wide:
		return in(at.Time, p.now) + " (" + at.UTC().Format(time.RFC3339) + ")"
	default:
		return in(at.Time, p.now)
	}
}
