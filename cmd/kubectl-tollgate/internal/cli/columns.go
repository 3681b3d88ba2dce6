package cli

import (
	"bufio"
	"io"
	"strconv"
	"strings"
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
	out := bufio.NewWriter(l.out)
	first := l.widths == nil
	if first {
		l.widths = make([]int, len(l.head))
	}
	widen(l.widths, l.head)
	rows = cleanRows(rows)
	for _, cells := range rows {
		widen(l.widths, cells)
	}
	if !l.wide {
		fit(l.widths, l.head)
	}
	if first {
		writeRow(out, l.head, l.widths)
	}
	for _, cells := range rows {
		writeRow(out, cells, l.widths)
	}
	return out.Flush()
}

// Summed returns the first item and the number of the others.
func Summed(items []string) string {
	switch len(items) {
	case 0:
		return None
	case 1:
		return items[0]
	default:
		return items[0] + " +" + strconv.Itoa(len(items)-1)
	}
}

// Joined returns the items, separated by commas.
func Joined(items []string) string {
	if len(items) == 0 {
		return None
	}
	return strings.Join(items, ", ")
}

// cleanRows returns rows with Clean cells.
func cleanRows(rows [][]string) [][]string {
	clean := make([][]string, 0, len(rows))
	for _, cells := range rows {
		row := make([]string, len(cells))
		for i, cell := range cells {
			row[i] = Clean(cell)
		}
		clean = append(clean, row)
	}
	return clean
}

// widen makes columns as wide as the cells of a row are long.
func widen(widths []int, cells []string) {
	for i, cell := range cells {
		widths[i] = max(widths[i], utf8.RuneCountInString(cell))
	}
}

// fit narrows the widest columns, none below its head, until the table fits into Width.
func fit(widths []int, head []string) {
	for total(widths) > Width {
		widest := -1
		for i := range widths {
			if widths[i] > utf8.RuneCountInString(head[i]) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func total(widths []int) int {
	sum := (len(widths) - 1) * len(gap)
	for _, width := range widths {
		sum += width
	}
	return sum
}

func writeRow(out *bufio.Writer, cells []string, widths []int) {
	var line strings.Builder
	for i, cell := range cells {
		cell = end(cell, widths[i])
		line.WriteString(cell)
		line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gap)
	}
	_, _ = out.WriteString(strings.TrimRight(line.String(), " ") + "\n") // Flush returns the error.
}

// end returns the last characters of a cell.
func end(cell string, width int) string {
	excess := utf8.RuneCountInString(cell) - width
	if excess <= 0 {
		return cell
	}
	runes := []rune(cell)
	return cut[:min(width, len(cut))] + string(runes[min(excess+len(cut), len(runes)):])
}
