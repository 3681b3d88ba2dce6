package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
)

// tabulate returns the tables of a scenario.
func tabulate(scenario scenario, rounds []round) []report.Table {
	if scenario.marks {
		return []report.Table{compareMarks(scenario, rounds)}
	}
	tables := []report.Table{compareBoth(scenario, rounds)}
	if slices.Contains(scenario.order, loop32) {
		tables = append(tables, compareLoops(scenario, rounds))
	}
	return tables
}

const ratioColumn = "ratio"

// compareBoth compares Tollgate and the built-in evictor.
func compareBoth(scenario scenario, rounds []round) report.Table {
	t := report.Table{
		Title:       scenario.title,
		Explanation: runs(rounds, tollgate) + " of each, median (range); the ratio is Tollgate to built-in",
		Columns:     []string{string(tollgate), string(builtin), ratioColumn},
	}
	for _, q := range quantities(scenario) {
		t.Rows = append(t.Rows, report.Row{Label: q.label, Cells: []string{
			q.spread(rounds, tollgate), q.spread(rounds, builtin), q.ratio(rounds),
		}})
	}
	return t
}

// compareLoops sets both beside what the API server can do.
func compareLoops(scenario scenario, rounds []round) report.Table {
	t := report.Table{
		Title:       "What the API server can do: the same pods by PATCH status and DELETE in a loop",
		Explanation: runs(rounds, loop32) + " of each, with as many pods at a time",
		Columns:     []string{string(loop32), string(loop64)},
	}
	pods := rate(scenario)
	for _, q := range append(times(scenario), costs(scenario)...) {
		if strings.Contains(q.label, "evicting process") || strings.HasPrefix(q.label, "  ") {
			continue
		}
		t.Rows = append(t.Rows, report.Row{Label: q.label, Cells: []string{q.spread(rounds, loop32), q.spread(rounds, loop64)}})
	}
	for _, who := range []evictor{tollgate, builtin} {
		r := report.Row{Label: fmt.Sprintf("pods a second, %s to loop", who)}
		for _, loop := range []evictor{loop32, loop64} {
			share := report.Median(pods.values(rounds, who)) / report.Median(pods.values(rounds, loop))
			r.Cells = append(r.Cells, strconv.FormatFloat(share, 'f', 2, 64))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// compareMarks sets the marks beside loops of the same requests, and beside the built-in evictor.
func compareMarks(scenario scenario, rounds []round) report.Table {
	evictors := []evictor{tollgate, byEvictionAPI, whileTerminating, builtin}
	t := report.Table{Title: scenario.title, Explanation: runs(rounds, tollgate) + " of each, median (range); each loop makes the same requests, 64 pods at a time"}
	for _, who := range evictors {
		t.Columns = append(t.Columns, string(who))
	}
	add := func(label string, cell func(who evictor) string) {
		r := report.Row{Label: label}
		for _, who := range evictors {
			r.Cells = append(r.Cells, cell(who))
		}
		t.Rows = append(t.Rows, r)
	}
	for _, q := range append(times(scenario), costs(scenario)...) {
		add(q.label, func(who evictor) string { return q.spread(rounds, who) })
	}
	pods := rate(scenario)
	add("pods a second of the loop", func(who evictor) string { return pods.spread(rounds, who.loop()) })
	share := func(who, other evictor) string {
		return strconv.FormatFloat(report.Median(pods.values(rounds, who))/report.Median(pods.values(rounds, other)), 'f', 2, 64)
	}
	add("pods a second, to the loop", func(who evictor) string { return share(who, who.loop()) })
	add("pods a second, to built-in", func(who evictor) string { return share(who, builtin) })
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
	return report.Spread(q.values(rounds, who), q.decimals)
}

// ratio is that of Tollgate to the built-in evictor: the mean over all rounds of
// the ratios of their means in a round.
func (q quantity) ratio(rounds []round) string {
	var ratios []float64
	for i := range rounds {
		one := rounds[i : i+1]
		ratios = append(ratios, report.Mean(q.values(one, tollgate))/report.Mean(q.values(one, builtin)))
	}
	return report.GeometricMean(ratios)
}
