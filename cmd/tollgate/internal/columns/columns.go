// Package columns writes tables for people: of at most Width characters a line unless
// they ask for more, without blanks at the ends of lines.
package columns

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// Width is how many characters a line of a table has at most that is not wide.
	Width = 100
	// None stands where there is nothing, as in tables of kubectl.
	None = "<none>"

	// gap is between two columns.
	gap = "  "
	// cut stands for what was cut off of a cell.
	cut = "..."
)

// Write writes a head and rows of as many cells. In a table that is not wide the longest
// cells lose their beginnings where it would not fit into Width: names begin alike. An
// error is that of the writer.
func Write(w io.Writer, wide bool, head []string, rows [][]string) error {
	widths := widthsOf(head, rows)
	if !wide {
		fit(widths, head)
	}
	out := bufio.NewWriter(w)
	writeRow(out, head, widths)
	for _, cells := range rows {
		writeRow(out, cells, widths)
	}
	return out.Flush()
}

// Summed returns the first of many and how many more there are.
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

// Joined returns all of many.
func Joined(items []string) string {
	if len(items) == 0 {
		return None
	}
	return strings.Join(items, ", ")
}

// widthsOf returns how many characters the longest cell of each column has.
func widthsOf(head []string, rows [][]string) []int {
	widths := make([]int, len(head))
	for i, cell := range head {
		widths[i] = utf8.RuneCountInString(cell)
	}
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// fit makes the widest columns narrower, and none narrower than its head, until the table
// fits into Width.
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
	_, _ = out.WriteString(strings.TrimRight(line.String(), " ") + "\n") // Flush tells.
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
