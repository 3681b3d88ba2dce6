package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/e2e/cmd/bench/decision"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
)

const (
	// fewestDecided is where the growing numbers of pods begin.
	fewestDecided = 100
	// decisionRuns is how often each measurement is repeated, and longDecision from
	// when on once is enough.
	decisionRuns = 5
	longDecision = 2 * time.Second
)

// compareDecisions compares how long both need to decide about growing numbers of
// pods.
func compareDecisions(ctx context.Context, most int, say func(string, ...any)) (report.Table, error) {
	t := report.Table{
		Title:       "From the event of a rule until it is decided about every pod, ms; no API server",
		Explanation: fmt.Sprintf("up to %d runs of each, median (range); the ratio is Tollgate to built-in", decisionRuns),
		Columns:     []string{string(tollgate), string(builtin), ratioColumn},
	}
	for _, shape := range []struct {
		label          string
		devicesPerPool int
	}{
		{"one pool", decision.OnePool},
		{"pools of 8 devices", 8},
	} {
		for pods := fewestDecided; pods <= most; pods *= 10 {
			label := strconv.Itoa(pods) + " pods, " + shape.label
			say("decide about %s", label)
			times, err := decide(ctx, decision.NewCluster(pods, shape.devicesPerPool, time.Now()))
			if err != nil {
				return t, fmt.Errorf("decide about %s: %w", label, err)
			}
			t.Rows = append(t.Rows, report.Row{Label: label, Cells: []string{
				report.Spread(times[tollgate], 2), report.Spread(times[builtin], 2),
				report.GeometricMean([]float64{report.Median(times[tollgate]) / report.Median(times[builtin])}),
			}})
		}
	}
	return t, nil
}

// decide returns how many milliseconds each took in each run.
func decide(ctx context.Context, cluster *decision.Cluster) (map[evictor][]float64, error) {
	times := map[evictor][]float64{}
	for range decisionRuns {
		// What earlier runs have left is not for this one to sweep up.
		runtime.GC()
		ours, err := cluster.Tollgate(time.Now())
		if err != nil {
			return nil, err
		}
		runtime.GC()
		theirs, err := cluster.Builtin(ctx, logr.Discard())
		if err != nil {
			return nil, err
		}
		times[tollgate] = append(times[tollgate], 1000*ours.Seconds())
		times[builtin] = append(times[builtin], 1000*theirs.Seconds())
		if ours+theirs > longDecision {
			break
		}
	}
	return times, nil
}
