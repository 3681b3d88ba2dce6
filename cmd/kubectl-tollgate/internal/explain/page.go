package explain

import (
	"bufio"
	"cmp"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// page is an explanation as text: the answer, and then sections of tables and facts. Lines that
// are not wide have at most cli.Width characters. Errors are those of Flush.
type page struct {
	out  *bufio.Writer
	wide bool
	now  time.Time
}

// writeText writes an explanation for people at now. A wide text has full names and times.
func writeText(w io.Writer, answer explanation, wide bool, now time.Time) error {
	p := &page{out: bufio.NewWriter(w), wide: wide, now: now}
	answer.write(p)
	return p.out.Flush()
}

// paragraph writes text after first, by which the lines below are indented.
func (p *page) paragraph(first, text string) {
	width := cli.Width
	if p.wide {
		width = math.MaxInt
	}
	for _, line := range cli.Indented(first, strings.Repeat(" ", len(first)), text, width) {
		p.line(line)
	}
}

func (p *page) line(text string) { _, _ = p.out.WriteString(cli.Clean(text) + "\n") }

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

// begin writes the answer.
func (p *page) begin(answer string) {
	p.paragraph("", answer)
	p.line("")
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
	rows, filled := [][]string{slices.Clone(head)}, make([]bool, len(head))
	for i := range items {
		cells := row(&items[i])
		for at, cell := range cells {
			filled[at] = filled[at] || cell != ""
			cells[at] = cmp.Or(cell, cli.None)
		}
		rows = append(rows, cells)
	}
	for i := range rows {
		at := -1
		rows[i] = slices.DeleteFunc(rows[i], func(string) bool { at++; return !filled[at] })
	}
	p.section(title)
	_ = cli.Write(p.out, p.wide, rows[0], rows[1:])
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
