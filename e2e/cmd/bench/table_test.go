package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
)

func took(last time.Duration) measurement { return measurement{last: last, first: last / 2} }

// twoRounds have Tollgate at half of the built-in evictor's time in one and at
// twice that in the other.
func twoRounds() []round {
	return []round{
		{tollgate: {took(time.Second), took(3 * time.Second)}, builtin: {took(4 * time.Second), took(4 * time.Second)}},
		{tollgate: {took(4 * time.Second), took(4 * time.Second)}, builtin: {took(2 * time.Second), took(2 * time.Second)}},
	}
}

func TestTabulate(t *testing.T) {
	tables := tabulate(scenario{title: "a scenario", pods: 10}, twoRounds())
	require.Len(t, tables, 1)
	got := tables[0]
	require.Equal(t, "4 runs of each, median (range); the ratio is Tollgate to built-in", got.Explanation)
	require.Equal(t, report.Row{
		Label: "until the last pod is marked, s", Cells: []string{"3.50 (1.00 to 4.00)", "3.00 (2.00 to 4.00)", "1.00"},
	}, got.Rows[0])
	for _, r := range got.Rows {
		if r.Label == "answers of 429" {
			require.Equal(t, []string{"0", "0", ""}, r.Cells, "nothing to nothing is no ratio")
		}
	}
}

func TestTabulateWithLoops(t *testing.T) {
	tables := tabulate(scenario{title: "a scenario", pods: 10, order: []evictor{loop32, tollgate, builtin, loop64}}, []round{{
		loop32: {took(2 * time.Second)}, loop64: {took(4 * time.Second)},
		tollgate: {took(5 * time.Second)}, builtin: {took(8 * time.Second)},
	}})
	require.Len(t, tables, 2)
	got := tables[1]
	require.Equal(t, []string{"loop of 32", "loop of 64"}, got.Columns)
	require.Equal(t, report.Row{Label: "until the last pod is marked, s", Cells: []string{"2.00", "4.00"}}, got.Rows[0])
	require.Equal(t, []report.Row{
		{Label: "pods a second, Tollgate to loop", Cells: []string{"0.40", "0.80"}},
		{Label: "pods a second, built-in to loop", Cells: []string{"0.25", "0.50"}},
	}, got.Rows[len(got.Rows)-2:])
}

func TestTabulateTimedPods(t *testing.T) {
	late := make([]time.Duration, 201)
	for i := range late {
		late[i] = time.Duration(i) * time.Millisecond
	}
	m := measurement{late: late, sinceStart: -time.Second, lateness: 0.5}
	got := tabulate(scenario{timed: true, pods: 201}, []round{{tollgate: {m}, builtin: {m}}})[0]
	for i, want := range []string{"0.000", "0.100", "0.198", "0.200", "-1.000", "0.500"} {
		require.Equal(t, want, got.Rows[i].Cells[0], got.Rows[i].Label)
	}
}

func TestTheReportFitsTheScreen(t *testing.T) {
	wide := measurement{
		first: time.Hour, last: 2 * time.Hour, evictor: time.Hour, controllerManager: time.Hour, apiServer: time.Hour,
		others: time.Hour, peak: 1 << 40, requests: requests{throttled: 100_000}, late: []time.Duration{time.Minute},
	}
	short := took(time.Second)
	short.late = []time.Duration{0}
	rounds := []round{{}}
	for _, who := range []evictor{tollgate, builtin, loop32, loop64} {
		rounds[0][who] = []measurement{wide, short}
	}
	o := options{pods: 1000, defaultPods: 1000, devicePods: 1000, manyDevicePods: 9800, defaultDevicePods: 1000, timedPods: 1000, nodes: 20}
	require.Len(t, o.scenarios(), 7)
	for _, scenario := range o.scenarios() {
		var out bytes.Buffer
		require.NoError(t, report.Write(&out, report.Machine{}, tabulate(scenario, rounds), false))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 100, line)
		}
	}
}

func TestTheReportAsMarkdown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report.Write(&out, report.Machine{}, tabulate(scenario{title: "a scenario", pods: 10}, twoRounds()), true))
	require.Contains(t, out.String(), "### a scenario\n\n4 runs of each")
	require.Contains(t, out.String(), "\n| until the last pod is marked, s | 3.50 (1.00 to 4.00) | 3.00 (2.00 to 4.00) | 1.00 |\n")
	require.Contains(t, out.String(), "\n| – GET pod | 0.00 | 0.00 |  |\n")
}
