package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheReportHasTheMedianOfEachAndHowTheyCompare(t *testing.T) {
	t.Parallel()
	s := &stage{options: options{pods: 101, nodes: 1}}
	var out strings.Builder
	require.NoError(t, s.report(&out, map[scheduler][]measurement{
		stock: {{took: time.Second, processor: 2 * time.Second}, {took: time.Second, processor: 4 * time.Second}},
		ours:  {{took: 2 * time.Second, processor: 3 * time.Second}, {took: 2 * time.Second, processor: 3 * time.Second}},
	}))
	require.Equal(t, `101 pods with a device each, 1 nodes, no patches; medians of 2
                                 pods/s  processor s
kube-scheduler                    100.0         3.00
with PatchedDynamicResources       50.0         3.00
ours to stock                      0.50         1.00
`, out.String())
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--nodes=0"}, {"--rounds=0"}, {"--pods=1", "--nodes=1"}, {"--pods=301"}} {
		command := newCommand()
		command.SetArgs(args)
		require.ErrorContains(t, command.ExecuteContext(t.Context()), "--pods a multiple of the nodes", args)
	}
}
