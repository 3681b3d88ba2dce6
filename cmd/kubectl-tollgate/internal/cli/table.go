package cli

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Width is the maximum length in characters of a line of a table that is not wide.
	Width = 100
	// None is the text of an empty cell, as in tables of kubectl.
	None = "<none>"

	// gap separates two columns.
	gap = "  "
	// cut replaces the truncated beginning of a cell.
	cut = "..."
)

// Write writes a table. If it is not wide and exceeds Width, the longest cells are truncated at
// the beginning, because names often share one. Errors are those of the writer.
func Write(w io.Writer, wide bool, head []string, rows [][]string) error {
	return NewLines(w, wide, head).Write(rows)
}

// Lines is a table to which rows are appended. Columns widen but never narrow. It is not safe for
// concurrent use.
type Lines struct {
	out    io.Writer
	wide   bool
	head   []string
	widths []int
}

// NewLines returns a table without rows.
func NewLines(w io.Writer, wide bool, head []string) *Lines {
	return &Lines{out: w, wide: wide, head: head}
}

// Write appends rows with one cell for each column of the head; the first call writes the head.
// Errors are those of the writer.
func (l *Lines) Write(rows [][]string) error {
	var all [][]string
	if l.widths == nil {
		l.widths, all = make([]int, len(l.head)), append(all, l.head)
	}
	for _, cells := range rows {
		clean := make([]string, len(cells))
		for i, cell := range cells {
			clean[i] = Clean(cell)
		}
		all = append(all, clean)
	}
	for _, cells := range all {
		for i, cell := range cells {
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(cell))
		}
	}
	// The widest column loses a character, but not below its head, until the table fits.
	for !l.wide {
		total, widest := (len(l.widths)-1)*len(gap), -1
		for i, width := range l.widths {
			total += width
			if width > utf8.RuneCountInString(l.head[i]) && (widest < 0 || width > l.widths[widest]) {
				widest = i
			}
		}
		if total <= Width || widest < 0 {
			break
		}
		l.widths[widest]--
	}
	out := bufio.NewWriter(l.out)
	for _, cells := range all {
		var line strings.Builder
		for i, cell := range cells {
			cell = End(cell, l.widths[i])
			line.WriteString(cell + strings.Repeat(" ", l.widths[i]-utf8.RuneCountInString(cell)) + gap)
		}
		_, _ = out.WriteString(strings.TrimRight(line.String(), " ") + "\n") // Flush returns the error.
	}
	return out.Flush()
}

// End returns the last characters of a cell, after dots if it is longer than width.
func End(cell string, width int) string {
	excess := utf8.RuneCountInString(cell) - width
	if excess <= 0 {
		return cell
	}
	runes := []rune(cell)
	return cut[:min(width, len(cut))] + string(runes[min(excess+len(cut), len(runes)):])
}

// Summed returns the first item and the number of the others.
func Summed(items []string) string {
	if len(items) < 2 {
		return Joined(items)
	}
	return items[0] + " +" + strconv.Itoa(len(items)-1)
}

// Joined returns the items, separated by commas.
func Joined(items []string) string {
	if len(items) == 0 {
		return None
	}
	return strings.Join(items, ", ")
}

// Clean escapes characters in untrusted text that would control or confuse a terminal. Control
// characters become ^[ and the like, other non-graphic characters \uXXXX, newlines and tabs
// blanks.
func Clean(text string) string {
	hidden := func(r rune) bool { return !unicode.IsGraphic(r) }
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	const caret = 0x40 // between a control character and the one that stands for it
	var clean strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
			clean.WriteByte(' ')
		case r < ' ' || r == unicode.MaxASCII:
			clean.WriteString("^" + string(r^caret))
		case hidden(r):
			fmt.Fprintf(&clean, `\u%04x`, r)
		default:
			clean.WriteRune(r)
		}
	}
	return clean.String()
}

// Wrapped returns text passed through Clean, in lines of at most width characters; all but the
// first are indented. A longer word has a line of its own.
func Wrapped(text string, width int) []string { return Indented("", "  ", Clean(text), width) }

// Wrap returns text in lines of at most Width characters, with the indentation of its first line
// and a line feed at the end; all lines but the first are indented further.
func Wrap(indent int, text string) string {
	first := strings.Repeat(" ", indent)
	return strings.Join(Indented(first, first+"  ", text, Width), "\n") + "\n"
}

// Indented returns text in lines of at most width characters after first, and after rest in all
// but the first line. A longer word has a line of its own.
func Indented(first, rest, text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = first + word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = rest + word
		}
	}
	if line == "" {
		return lines
	}
	return append(lines, line)
}
