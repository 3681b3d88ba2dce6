package devicetable

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// Width is how many columns of characters a table has at most that is not wide.
	Width = 100
	// gap is between two columns.
	gap = "  "
	// cut stands for what was cut off of a cell.
	cut = "..."
)

// WriteTable writes a row for each device, and nothing if there is none. A table that is
// wide says all in full, with where it comes from; else the longest cells lose their
// beginnings where it would not fit into Width.
func (v *Inventory) WriteTable(ctx context.Context, w io.Writer, wide bool) error {
	head := []string{"DRIVER/POOL/DEVICE", "NODE", "TAINTS", "PATCHES", "CLAIM", "POD"}
	row := shortRow
	if wide {
		head, row = append(head, "ATTRIBUTES", "CAPACITY"), wideRow
	}
	rows := [][]string{head}
	for d := range v.Devices(ctx) {
		rows = append(rows, row(d))
	}
	if ctx.Err() != nil || len(rows) == 1 {
		return ctx.Err()
	}
	widths := widthsOf(rows)
	if !wide {
		fit(widths, head)
	}
	out := bufio.NewWriter(w)
	for _, cells := range rows {
		writeRow(out, cells, widths)
	}
	return out.Flush()
}

// WriteNames writes driver/pool/device of each device on a line.
func (v *Inventory) WriteNames(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	for d := range v.Devices(ctx) {
		_, _ = out.WriteString(d.Device.String() + "\n") // Flush tells.
	}
	return cmp.Or(ctx.Err(), out.Flush())
}

func shortRow(d *Device) []string {
	return []string{
		d.Device.String(), node(d), summed(shortTaints(d)), summed(patches(d)) + limitedMark(d), summed(claims(d)), summed(consumers(d, false)),
	}
}

func wideRow(d *Device) []string {
	return []string{
		d.Device.String(), node(d), joined(taintsWithSource(d)), joined(patches(d)) + limitedMark(d), joined(claims(d)), joined(consumers(d, true)),
		joined(attributes(d)), joined(capacity(d)),
	}
}

// widthsOf returns how many characters the longest cell of each column has.
func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
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
			if widths[i] > len(head[i]) && (widest < 0 || widths[i] > widths[widest]) {
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

// writeRow writes a line without blanks at its end.
func writeRow(out *bufio.Writer, cells []string, widths []int) {
	var line strings.Builder
	for i, cell := range cells {
		cell = end(cell, widths[i])
		line.WriteString(cell)
		line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gap)
	}
	_, _ = out.WriteString(strings.TrimRight(line.String(), " ") + "\n") // Flush tells.
}

// end returns the last characters of a cell, which tell more than the first: names begin
// alike.
func end(cell string, width int) string {
	excess := utf8.RuneCountInString(cell) - width
	if excess <= 0 {
		return cell
	}
	runes := []rune(cell)
	return cut + string(runes[excess+len(cut):])
}
