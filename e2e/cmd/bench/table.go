package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table compares evictors.
type table struct {
	title, explanation string
	columns            []string
	rows               []row
}

// row is one quantity, with a cell for each column.
type row struct {
	label string
	cells []string
}

// tabulate returns the tables of a scenario.
func tabulate(scenario scenario, rounds []round) []table {
	tables := []table{compareBoth(scenario, rounds)}
	if slices.Contains(scenario.order, loop32) {
		tables = append(tables, compareLoops(scenario, rounds))
	}
	return tables
}

// ratioColumn is narrower than the others.
const ratioColumn = "ratio"

// compareBoth compares Tollgate and the built-in evictor.
func compareBoth(scenario scenario, rounds []round) table {
	t := table{
		title:       scenario.title,
		explanation: runs(rounds, tollgate) + " of each, median (range); the ratio is Tollgate to built-in",
		columns:     []string{string(tollgate), string(builtin), ratioColumn},
	}
	for _, q := range quantities(scenario) {
		t.rows = append(t.rows, row{label: q.label, cells: []string{
			q.spread(rounds, tollgate), q.spread(rounds, builtin), q.ratio(rounds),
		}})
	}
	return t
}

// compareLoops sets both beside what the API server can do.
func compareLoops(scenario scenario, rounds []round) table {
	t := table{
		title:       "What the API server can do: the same pods by PATCH status and DELETE in a loop",
		explanation: runs(rounds, loop32) + " of each, with as many pods at a time",
		columns:     []string{string(loop32), string(loop64)},
	}
	pods := rate(scenario)
	for _, q := range append(times(scenario), costs(scenario)...) {
		if strings.Contains(q.label, "evicting process") || strings.HasPrefix(q.label, "  ") {
			continue
		}
		t.rows = append(t.rows, row{label: q.label, cells: []string{q.spread(rounds, loop32), q.spread(rounds, loop64)}})
	}
	for _, who := range []evictor{tollgate, builtin} {
		r := row{label: fmt.Sprintf("pods a second, %s to loop", who)}
		for _, loop := range []evictor{loop32, loop64} {
			share := median(pods.values(rounds, who)) / median(pods.values(rounds, loop))
			r.cells = append(r.cells, strconv.FormatFloat(share, 'f', 2, 64))
		}
		t.rows = append(t.rows, r)
	}
	return t
}

func runs(rounds []round, who evictor) string {
	n := 0
	for _, r := range rounds {
		n += len(r[who])
	}
	if n == 1 {
		return "1 run"
	}
	return strconv.Itoa(n) + " runs"
}

// values are those of all runs of an evictor.
func (q quantity) values(rounds []round, who evictor) []float64 {
	var values []float64
	for _, r := range rounds {
		for _, m := range r[who] {
			values = append(values, q.value(m))
		}
	}
	return values
}

// spread is the median of all runs, and their range unless they look the same.
func (q quantity) spread(rounds []round, who evictor) string {
	return spread(q.values(rounds, who), q.decimals)
}

// ratio is that of Tollgate to the built-in evictor: the mean over all rounds of
// the ratios of their means in a round.
func (q quantity) ratio(rounds []round) string {
	var ratios []float64
	for i := range rounds {
		one := rounds[i : i+1]
		ratios = append(ratios, mean(q.values(one, tollgate))/mean(q.values(one, builtin)))
	}
	return geometricMean(ratios)
}

// spread is empty for what was not measured.
func spread(values []float64, decimals int) string {
	if slices.ContainsFunc(values, math.IsNaN) {
		return ""
	}
	format := func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
	low, high := format(slices.Min(values)), format(slices.Max(values))
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s to %s)", format(median(values)), low, high)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// geometricMean is that of ratios, which averages a half and a double to one. It
// is empty where one of them says nothing.
func geometricMean(ratios []float64) string {
	sum := 0.0
	for _, ratio := range ratios {
		if ratio <= 0 || math.IsInf(ratio, 0) || math.IsNaN(ratio) {
			return ""
		}
		sum += math.Log(ratio)
	}
	return strconv.FormatFloat(math.Exp(sum/float64(len(ratios))), 'f', 2, 64)
}

// Widths of the columns; a line is no longer than 100.
const (
	labelWidth = 39
	cellWidth  = 25
	ratioWidth = 7
)

// report prints the tables.
func report(out io.Writer, m machine, tables []table, markdown bool) error {
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

func (t table) plain(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s\n%s\n\n", t.title, t.explanation)
	for _, r := range append([]row{{cells: t.columns}}, t.rows...) {
		var line strings.Builder
		fmt.Fprintf(&line, "%-*s", labelWidth, r.label)
		for i, cell := range r.cells {
			width := cellWidth
			if t.columns[i] == ratioColumn {
				width = ratioWidth
			}
			fmt.Fprintf(&line, "%*s", width, cell)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func (t table) markdown(text *strings.Builder) {
	fmt.Fprintf(text, "### %s\n\n%s.\n\n| | %s |\n|%s\n", t.title, t.explanation,
		strings.Join(t.columns, " | "), strings.Repeat("---|", 1+len(t.columns)))
	for _, r := range t.rows {
		label := r.label
		if inner, ok := strings.CutPrefix(label, "  "); ok {
			label = "– " + inner
		}
		fmt.Fprintf(text, "| %s | %s |\n", label, strings.Join(r.cells, " | "))
	}
	text.WriteString("\n")
}
