package main

import (
	"bytes"
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
	got := tabulate(scenario{title: "a scenario", pods: 10}, twoRounds())
	require.Equal(t, 4, got.runs)
	require.Equal(t, row{
		label: "until the last pod is marked, s", tollgate: "3.50 (1.00 to 4.00)", builtin: "3.00 (2.00 to 4.00)", ratio: "1.00",
	}, got.rows[0])
	for _, r := range got.rows {
		if r.label == "answers of 429" {
			require.Equal(t, row{label: r.label, tollgate: "0", builtin: "0"}, r, "nothing to nothing is no ratio")
		}
	}
}

func TestSpread(t *testing.T) {
	require.Equal(t, "1.00", spread([]float64{1.001, 0.999}, 2))
	require.Equal(t, "2.5 (1.0 to 9.0)", spread([]float64{9, 2, 3, 1}, 1))
	require.Equal(t, "2 (1 to 9)", spread([]float64{9, 2, 1}, 0))
}

func TestGeometricMean(t *testing.T) {
	require.Equal(t, "1.00", geometricMean([]float64{0.5, 2}))
	require.Empty(t, geometricMean([]float64{1, 0}))
}

func TestTheReportFitsTheScreen(t *testing.T) {
	wide := measurement{
		first: time.Hour, last: 2 * time.Hour, evictor: time.Hour, controllerManager: time.Hour, apiServer: time.Hour,
		others: time.Hour, peak: 1 << 40, requests: requests{throttled: 100_000},
	}
	rounds := []round{{tollgate: {wide, took(time.Second)}, builtin: {wide, took(time.Second)}}}
	for _, scenario := range (options{pods: 1000, defaultPods: 200, nodes: 20}).scenarios() {
		var out bytes.Buffer
		require.NoError(t, report(&out, machine{cpu: "some CPU"}, []table{tabulate(scenario, rounds)}, false))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 100, line)
		}
	}
}

func TestTheReportAsMarkdown(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report(&out, machine{}, []table{tabulate(scenario{title: "a scenario", pods: 10}, twoRounds())}, true))
	require.Contains(t, out.String(), "### a scenario\n\n4 runs of each")
	require.Contains(t, out.String(), "\n| until the last pod is marked, s | 3.50 (1.00 to 4.00) | 3.00 (2.00 to 4.00) | 1.00 |\n")
	require.Contains(t, out.String(), "\n| – GET pod | 0.00 | 0.00 |  |\n")
}
