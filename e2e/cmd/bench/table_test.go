package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	require.Equal(t, "4 runs of each, median (range); the ratio is Tollgate to built-in", got.explanation)
	require.Equal(t, row{
		label: "until the last pod is marked, s", cells: []string{"3.50 (1.00 to 4.00)", "3.00 (2.00 to 4.00)", "1.00"},
	}, got.rows[0])
	for _, r := range got.rows {
		if r.label == "answers of 429" {
			require.Equal(t, []string{"0", "0", ""}, r.cells, "nothing to nothing is no ratio")
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
	require.Equal(t, []string{"loop of 32", "loop of 64"}, got.columns)
	require.Equal(t, row{label: "until the last pod is marked, s", cells: []string{"2.00", "4.00"}}, got.rows[0])
	require.Equal(t, []row{
		{label: "pods a second, Tollgate to loop", cells: []string{"0.40", "0.80"}},
		{label: "pods a second, built-in to loop", cells: []string{"0.25", "0.50"}},
	}, got.rows[len(got.rows)-2:])
}

func TestTabulateTimedPods(t *testing.T) {
	late := make([]time.Duration, 201)
	for i := range late {
		late[i] = time.Duration(i) * time.Millisecond
	}
	m := measurement{late: late, sinceStart: -time.Second, lateness: 0.5}
	got := tabulate(scenario{timed: true, pods: 201}, []round{{tollgate: {m}, builtin: {m}}})[0]
	for i, want := range []string{"0.000", "0.100", "0.198", "0.200", "-1.000", "0.500"} {
		require.Equal(t, want, got.rows[i].cells[0], got.rows[i].label)
	}
}

func TestSpread(t *testing.T) {
	require.Equal(t, "1.00", spread([]float64{1.001, 0.999}, 2))
	require.Equal(t, "2.5 (1.0 to 9.0)", spread([]float64{9, 2, 3, 1}, 1))
	require.Equal(t, "2 (1 to 9)", spread([]float64{9, 2, 1}, 0))
	require.Empty(t, spread([]float64{math.NaN()}, 2))
}

func TestGeometricMean(t *testing.T) {
	require.Equal(t, "1.00", geometricMean([]float64{0.5, 2}))
	require.Empty(t, geometricMean([]float64{1, 0}))
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
		require.NoError(t, report(&out, machine{cpu: "some CPU"}, tabulate(scenario, rounds), false))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 100, line)
		}
	}
}

func TestTheReportAsMarkdown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report(&out, machine{}, tabulate(scenario{title: "a scenario", pods: 10}, twoRounds()), true))
	require.Contains(t, out.String(), "### a scenario\n\n4 runs of each")
	require.Contains(t, out.String(), "\n| until the last pod is marked, s | 3.50 (1.00 to 4.00) | 3.00 (2.00 to 4.00) | 1.00 |\n")
	require.Contains(t, out.String(), "\n| – GET pod | 0.00 | 0.00 |  |\n")
}
