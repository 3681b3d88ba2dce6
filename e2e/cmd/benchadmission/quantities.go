package main

import (
	"fmt"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
)

// quantity is something measured of a creation.
type quantity struct {
	label    string
	decimals int
	value    func(creation) float64
	// some engines have none of it, so that there is no ratio.
	some bool
}

func perPod(used time.Duration, c creation) float64 {
	return used.Seconds() * 1e3 / float64(c.pods)
}

// quantities are those of a creation. The sum of CPU comes first: it is what an engine costs a cluster.
func quantities() []quantity {
	percentile := func(n int) func(creation) float64 {
		return func(c creation) float64 { return c.latencies[(len(c.latencies)-1)*n/100].Seconds() * 1e3 }
	}
	return []quantity{
		{"CPU of API server and engine, ms a pod", 2, func(c creation) float64 { return perPod(c.apiServer+c.engine, c) }, false},
		{"CPU of the API server, ms a pod", 2, func(c creation) float64 { return perPod(c.apiServer, c) }, false},
		{"CPU of the engine, ms a pod", 2, func(c creation) float64 { return perPod(c.engine, c) }, true},
		{"creations a second", 0, func(c creation) float64 { return float64(c.pods) / c.took.Seconds() }, false},
		{"a creation takes, median, ms", 1, percentile(50), false},
		{"a creation takes, 99th percentile, ms", 1, percentile(99), false},
	}
}

// values are those of all measurements under an engine.
func (c created) values(q quantity, e engine) []float64 {
	var values []float64
	for _, round := range c {
		for _, m := range round[e] {
			values = append(values, q.value(m))
		}
	}
	return values
}

// ratios are those of one engine to another, a round each.
func (c created) ratios(q quantity, e, to engine) []float64 {
	var ratios []float64
	for i := range c {
		round := c[i : i+1]
		ratios = append(ratios, report.Mean(round.values(q, e))/report.Mean(round.values(q, to)))
	}
	return ratios
}

// tabulateCreations has a table of ratios, which is what to read, and the figures themselves for each scene.
func (s *stage) tabulateCreations(scenes []scene, all map[scene]created) []report.Table {
	if len(scenes) == 0 {
		return nil
	}
	n := len(all[scenes[0]])
	how := fmt.Sprintf("%s, in each of which every engine has its turn twice, with %d pods of a kind on %d connections", rounds(n), s.options.pods, connections)
	if s.options.dryRun {
		how += ", as dry runs"
	}
	comparison := report.Table{
		Title:       "Pods created through the API server: ratios to no policy engine",
		Explanation: how + "; median (range) of rounds [95 % interval of their mean]",
		Columns:     []string{"VAP", "bare", "Tollgate", "Tollgate to VAP"},
	}
	for _, q := range quantities() {
		if q.some {
			continue
		}
		comparison.Rows = append(comparison.Rows, report.Row{Label: q.label})
		for _, c := range scenes {
			comparison.Rows = append(comparison.Rows, report.Row{Label: "  " + c.String(), Cells: []string{
				report.Ratio(all[c].ratios(q, vapEngine, noEngine)), report.Ratio(all[c].ratios(q, bareEngine, noEngine)),
				report.Ratio(all[c].ratios(q, tollgateEngine, noEngine)), report.Ratio(all[c].ratios(q, tollgateEngine, vapEngine)),
			}})
		}
	}
	tables := []report.Table{comparison}
	for _, c := range scenes {
		t := report.Table{Title: "Pods created through the API server: " + c.String(), Explanation: how + "; median (range)"}
		for _, e := range engines {
			t.Columns = append(t.Columns, string(e))
		}
		for _, q := range quantities() {
			r := report.Row{Label: q.label}
			for _, e := range engines {
				r.Cells = append(r.Cells, report.Spread(all[c].values(q, e), q.decimals))
			}
			t.Rows = append(t.Rows, r)
		}
		tables = append(tables, t)
	}
	return tables
}
