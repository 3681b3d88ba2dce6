package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
)

// TestMain lets the test binary be the servers that the program starts from itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "answer" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// What it measures says nothing about time here: it fails where a server answers something else than
// it should, or an engine does not judge what it should.
func TestTheBenchmarkRuns(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"--quick"})
	cmd.SetOut(&out)
	cmd.SetErr(t.Output())
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	text := out.String()
	t.Log(text)
	require.Equal(t, 1, strings.Count(text, "\nOne review of a pod's creation, "))
	require.Equal(t, 3, strings.Count(text, "\nPods created through the API server: "))
	require.NotContains(t, text, "NaN")
}

func TestRatiosAreOfRounds(t *testing.T) {
	t.Parallel()
	took := func(d time.Duration) creation {
		return creation{pods: 1, took: d * 1000, latencies: []time.Duration{d * 1000}, apiServer: d * 1000, engine: d * 500}
	}
	c := created{
		{noEngine: {took(1), took(3)}, vapEngine: {took(1)}, bareEngine: {took(1)}, tollgateEngine: {took(4), took(4)}},
		{noEngine: {took(4), took(4)}, vapEngine: {took(1)}, bareEngine: {took(1)}, tollgateEngine: {took(2), took(2)}},
	}
	both := quantities()[0]
	require.Equal(t, []float64{2, 0.5}, c.ratios(both, tollgateEngine, noEngine))

	one := scene{policies: 1, guarded: true}
	tables := (&stage{}).tabulateCreations([]scene{one}, map[scene]created{one: c})
	require.Len(t, tables, 2)
	require.Equal(t, "CPU of API server and engine, ms a pod", tables[0].Rows[0].Label)
	require.Equal(t, "  1 policy, guarded pods", tables[0].Rows[1].Label)
	require.Equal(t, "1.25 (0.50 to 2.00)", tables[0].Rows[1].Cells[2])
}

func TestReviewsAreComparedByRound(t *testing.T) {
	t.Parallel()
	s := &stage{options: options{reviews: 10}}
	table := s.tabulate(1000, []setting{{group: "Tollgate, validating", label: "no policy"}}, []costs{{
		cpu:       []map[string]float64{{constant: 10, bare: 100, "tollgate": 20}, {constant: 10, bare: 100, "tollgate": 40}},
		allocated: map[string]float64{constant: 1000, bare: 3000, "tollgate": 1200},
	}})
	require.Equal(t, []report.Row{
		{Label: "constant answer", Cells: []string{"10", "0.10", "1.0", "1.00"}},
		{Label: "bare", Cells: []string{"100", "1.00", "10.0", "3.00"}},
		{Label: "Tollgate, validating"},
		{Label: "  no policy", Cells: []string{"30 (20 to 40)", "0.30 (0.20 to 0.40)", "3.0 (2.0 to 4.0)", "1.20"}},
	}, table.Rows)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--rounds=0"}, {"--reviews=-1"}, {"--pods=-1"}, {"--plain=-1"}, {"--policies=0"}} {
		cmd := newCommand()
		cmd.SetArgs(args)
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "--rounds and --policies must be at least 1", args)
	}
}
