package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table compares what stands in its columns.
type Table struct {
	Title, Explanation string
	Columns            []string
	Rows               []Row
}

// Row is one quantity, with a cell for each column. A label that begins with two spaces is a
// part of the row above.
type Row struct {
	Label string
	Cells []string
}

// Spread is the median, and the range unless both ends look the same; empty for what was
// not measured.
func Spread(values []float64, decimals int) string {
	if slices.ContainsFunc(values, math.IsNaN) {
		return ""
	}
	format := func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
	low, high := format(slices.Min(values)), format(slices.Max(values))
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s to %s)", format(Median(values)), low, high)
}

// Mean is the arithmetic mean.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Median is the one in the middle.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// GeometricMean is that of ratios, which averages a half and a double to one. It
// is empty where one of them says nothing.
func GeometricMean(ratios []float64) string {
	sum := 0.0
	for _, ratio := range ratios {
		if ratio <= 0 || math.IsInf(ratio, 0) || math.IsNaN(ratio) {
			return ""
		}
		sum += math.Log(ratio)
	}
	return strconv.FormatFloat(math.Exp(sum/float64(len(ratios))), 'f', 2, 64)
}

// Write prints the machine and the tables.
func Write(out io.Writer, m Machine, tables []Table, markdown bool) error {
	var text strings.Builder
	for _, line := range m.lines() {
		text.WriteString(line + "\n")
		if markdown {
			text.WriteString("\n")
		}
	}
	for _, t := range tables {
		if markdown {
			t.markdown(&text)
		} else {
			t.plain(&text)
		}
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("print tables: %w", err)
	}
	return nil
}

// plain writes the table with each column as wide as its widest cell.
func (t Table) plain(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s\n%s\n\n", t.Title, t.Explanation)
	rows := append([]Row{{Cells: t.Columns}}, t.Rows...)
	label, widths := 0, make([]int, len(t.Columns))
	for _, r := range rows {
		label = max(label, utf8.RuneCountInString(r.Label))
		for i, cell := range r.Cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		fmt.Fprintf(&line, "%-*s", label, r.Label)
		for i, cell := range r.Cells {
			fmt.Fprintf(&line, "  %*s", widths[i], cell)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func (t Table) markdown(text *strings.Builder) {
	fmt.Fprintf(text, "### %s\n\n%s.\n\n| | %s |\n|%s\n", t.Title, t.Explanation,
		strings.Join(t.Columns, " | "), strings.Repeat("---|", 1+len(t.Columns)))
	for _, r := range t.Rows {
		label := r.Label
		if inner, ok := strings.CutPrefix(label, "  "); ok {
			label = "– " + inner
		}
		fmt.Fprintf(text, "| %s | %s |\n", label, strings.Join(r.Cells, " | "))
	}
	text.WriteString("\n")
}
