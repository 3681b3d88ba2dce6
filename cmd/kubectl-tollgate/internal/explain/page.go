package explain

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// page is text for people: the answer, and then sections of tables and facts, of lines that
// are no longer than cli.Width unless they ask for more.
type page struct {
	out  *bufio.Writer
	wide bool
	now  time.Time
	err  error
}

// writePage writes an answer and what follows.
func writePage(w io.Writer, wide bool, now time.Time, answer string, rest func(*page)) error {
	p := &page{out: bufio.NewWriter(w), wide: wide, now: now}
	p.paragraph("", answer)
	rest(p)
	if p.err != nil {
		return p.err
	}
	return p.out.Flush()
}

// paragraph writes text whose first line begins with first, and all others with as many
// blanks.
func (p *page) paragraph(first, text string) {
	indent := strings.Repeat(" ", len(first))
	width := cli.Width
	if p.wide {
		width = len(first) + len(text)
	}
	line := first
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == first || line == indent:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			p.line(line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	p.line(line)
}

func (p *page) line(text string) { _, _ = p.out.WriteString(plain(text) + "\n") } // Flush tells.

// plain shows the control characters of what others wrote, as events and names of managers,
// so that they do nothing to a terminal: ^[ for an escape.
func plain(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	var shown strings.Builder
	for _, r := range text {
		switch {
		case !unicode.IsControl(r):
			shown.WriteRune(r)
		case r == '\n' || r == '\t':
			shown.WriteByte(' ')
		case r < ' ':
			shown.WriteString("^" + string('@'+r))
		default:
			shown.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return shown.String()
}

// fact writes a name and a value, and nothing without a value.
func (p *page) fact(name, value string) {
	const place = 14
	if value == "" {
		return
	}
	p.paragraph(name+":"+strings.Repeat(" ", max(place-len(name), 1)), value)
}

// item writes what is said of something, over as many lines as it takes.
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

// table writes a section with a table, and nothing without rows. A column of which no row
// says anything is left out.
func (p *page) table(title string, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.section(title)
	head, rows = filled(head, rows)
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
		}
	}
	if err := cli.Write(p.out, p.wide, head, rows); err != nil && p.err == nil {
		p.err = err
	}
}

// filled returns a table without its empty columns.
func filled(head []string, rows [][]string) ([]string, [][]string) {
	var keep []int
	for i := range head {
		for _, row := range rows {
			if row[i] != "" {
				keep = append(keep, i)
				break
			}
		}
	}
	pick := func(row []string, empty string) []string {
		picked := make([]string, len(keep))
		for at, i := range keep {
			if picked[at] = row[i]; picked[at] == "" {
				picked[at] = empty
			}
		}
		return picked
	}
	picked := make([][]string, len(rows))
	for i, row := range rows {
		picked[i] = pick(row, cli.None)
	}
	return pick(head, ""), picked
}

// when says when something is, and in full where there is room.
func (p *page) when(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	if p.wide {
		return in(at.Time, p.now) + " (" + at.UTC().Format(time.RFC3339) + ")"
	}
	return in(at.Time, p.now)
}
