package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const scraped = `# TYPE tollgate_eviction_lateness_seconds histogram
tollgate_eviction_lateness_seconds_bucket{source="node",le="0.5"} 100
tollgate_eviction_lateness_seconds_bucket{source="node",le="+Inf"} 100
tollgate_eviction_lateness_seconds_sum{source="node"} 1
tollgate_eviction_lateness_seconds_count{source="node"} 100
tollgate_eviction_lateness_seconds_bucket{source="devicetaintrule",le="0.1"} 90
tollgate_eviction_lateness_seconds_bucket{source="devicetaintrule",le="0.25"} 90
tollgate_eviction_lateness_seconds_bucket{source="devicetaintrule",le="0.5"} 100
tollgate_eviction_lateness_seconds_bucket{source="devicetaintrule",le="+Inf"} 100
tollgate_eviction_lateness_seconds_sum{source="devicetaintrule"} 10
tollgate_eviction_lateness_seconds_count{source="devicetaintrule"} 100
`

func TestLateness(t *testing.T) {
	got, err := latenessIn(strings.NewReader(scraped))
	require.NoError(t, err)
	require.InDelta(t, 0.475, got, 1e-9, "nine tenths of the way from 0.25 to 0.5")
	for name, test := range map[string]struct{ metrics, want string }{
		"rules have none": {metrics: strings.ReplaceAll(scraped, "devicetaintrule", "resourceslice"), want: "no " + latenessMetric},
		"nothing was late": {
			metrics: latenessMetric + `_count{source="devicetaintrule"} 0` + "\n", want: "no " + latenessMetric,
		},
		"it is not metrics": {metrics: "<html>", want: "read metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := latenessIn(strings.NewReader(test.metrics))
			require.ErrorContains(t, err, test.want)
		})
	}
}
