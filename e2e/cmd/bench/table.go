package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table compares the two evictors.
type table struct {
	title string
	runs  int
	rows  []row
}

// row is one quantity.
type row struct {
	label             string
	tollgate, builtin string
	ratio             string
}

// quantity is something measured, less being better unless it is a rate.
type quantity struct {
	label    string
	decimals int
	value    func(measurement) float64
}

func quantities(pods int) []quantity {
	perPod := func(count func(requests) int) func(measurement) float64 {
		return func(m measurement) float64 { return float64(count(m.requests)) / float64(pods) }
	}
	return []quantity{
		{"until the last pod is marked, s", 2, func(m measurement) float64 { return m.last.Seconds() }},
		{"until half of them are marked, s", 2, func(m measurement) float64 { return m.half.Seconds() }},
		{"until the first pod is marked, s", 2, func(m measurement) float64 { return m.first.Seconds() }},
		{"until the last pod is gone, s", 2, func(m measurement) float64 { return m.gone.Seconds() }},
		{"pods a second", 1, func(m measurement) float64 { return float64(pods) / m.last.Seconds() }},
		{"requests a pod", 2, perPod(func(r requests) int { return r.total() })},
		{"  GET pod", 2, perPod(func(r requests) int { return r.gets })},
		{"  PATCH pod status", 2, perPod(func(r requests) int { return r.marks })},
		{"  DELETE pod", 2, perPod(func(r requests) int { return r.deletes })},
		{"  events", 2, perPod(func(r requests) int { return r.events })},
		{"  others (GET node)", 2, perPod(func(r requests) int { return r.others })},
		{"answers of 429", 0, func(m measurement) float64 { return float64(m.requests.throttled) }},
		{"answers of 409", 0, func(m measurement) float64 { return float64(m.requests.conflicts) }},
		{"CPU of the evicting process, s", 2, func(m measurement) float64 { return m.evictor.Seconds() }},
		{"CPU of kube-controller-manager, s", 2, func(m measurement) float64 { return m.controllerManager.Seconds() }},
		{"CPU of kube-apiserver, s", 2, func(m measurement) float64 { return m.apiServer.Seconds() }},
		{"CPU of what has no part in it, s", 2, func(m measurement) float64 { return m.others.Seconds() }},
		{"peak RSS of the evicting process, MiB", 0, func(m measurement) float64 { return float64(m.peak) / (1 << 20) }},
	}
}

func tabulate(scenario scenario, rounds []round) table {
	t := table{title: scenario.title}
	for _, q := range quantities(scenario.pods) {
		values := map[evictor][]float64{}
		var ratios []float64
		for _, r := range rounds {
			mean := map[evictor]float64{}
			for _, who := range []evictor{tollgate, builtin} {
				for _, m := range r[who] {
					values[who] = append(values[who], q.value(m))
					mean[who] += q.value(m) / float64(len(r[who]))
				}
			}
			ratios = append(ratios, mean[tollgate]/mean[builtin])
		}
		t.runs = len(values[tollgate])
		t.rows = append(t.rows, row{
			label:    q.label,
			tollgate: spread(values[tollgate], q.decimals),
			builtin:  spread(values[builtin], q.decimals),
			ratio:    geometricMean(ratios),
		})
	}
	return t
}

// spread is the median of values, and their range unless they look the same.
func spread(values []float64, decimals int) string {
	format := func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
	low, high := format(slices.Min(values)), format(slices.Max(values))
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s to %s)", format(median(values)), low, high)
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

func (t table) explanation() string {
	return fmt.Sprintf("%d runs of each, median (range); the ratio is Tollgate to built-in", t.runs)
}

func (t table) plain(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s\n%s\n\n", t.title, t.explanation())
	for _, r := range append([]row{{"", string(tollgate), string(builtin), "ratio"}}, t.rows...) {
		line := fmt.Sprintf("%-*s%*s%*s%*s", labelWidth, r.label, cellWidth, r.tollgate, cellWidth, r.builtin, ratioWidth, r.ratio)
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func (t table) markdown(text *strings.Builder) {
	fmt.Fprintf(text, "### %s\n\n%s.\n\n| | %s | %s | ratio |\n|---|---|---|---|\n", t.title, t.explanation(), tollgate, builtin)
	for _, r := range t.rows {
		label := r.label
		if inner, ok := strings.CutPrefix(label, "  "); ok {
			label = "– " + inner
		}
		fmt.Fprintf(text, "| %s | %s | %s | %s |\n", label, r.tollgate, r.builtin, r.ratio)
	}
	text.WriteString("\n")
}
