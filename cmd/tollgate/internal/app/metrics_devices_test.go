package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

type devices map[tracker.DriverEffect]int

func (d devices) TaintedDevices() map[tracker.DriverEffect]int { return d }

func TestTaintedDevicesAreCountedWhenAskedFor(t *testing.T) {
	t.Parallel()
	counted := devices{
		{Driver: "gpu.example.com", Effect: "NoExecute"}:  3,
		{Driver: "gpu.example.com", Effect: "NoSchedule"}: 2,
		{Driver: "nic.example.com", Effect: "None"}:       1,
		{Driver: "nic.example.com", Effect: "Freeze"}:     4,
		{Driver: "nic.example.com", Effect: "Thaw"}:       5,
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Collector(counted.TaintedDevices))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP tollgate_tainted_devices Devices, published or allocated, with at least one taint of the effect, by driver and effect.
# TYPE tollgate_tainted_devices gauge
tollgate_tainted_devices{driver="gpu.example.com",effect="NoExecute"} 3
tollgate_tainted_devices{driver="gpu.example.com",effect="NoSchedule"} 2
tollgate_tainted_devices{driver="nic.example.com",effect="None"} 1
tollgate_tainted_devices{driver="nic.example.com",effect="other"} 9
`)))
	delete(counted, tracker.DriverEffect{Driver: "gpu.example.com", Effect: "NoSchedule"})
	count, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Equal(t, 3, count)
}

func TestF14TheNamesOfDriversAreBounded(t *testing.T) {
	t.Parallel()
	counted := devices{}
	for i := range 10 * maxDrivers {
		counted[tracker.DriverEffect{Driver: fmt.Sprintf("driver-%04d", i), Effect: "NoExecute"}] = 1
		counted[tracker.DriverEffect{Driver: fmt.Sprintf("driver-%04d", i), Effect: "NoSchedule"}] = 2
	}
	sums := bounded(counted)
	require.Len(t, sums, 2*(maxDrivers+1))
	require.Equal(t, 9*maxDrivers, sums[tracker.DriverEffect{Driver: otherLabel, Effect: "NoExecute"}])
	require.Equal(t, 18*maxDrivers, sums[tracker.DriverEffect{Driver: otherLabel, Effect: "NoSchedule"}])
	require.Equal(t, 1, sums[tracker.DriverEffect{Driver: "driver-0099", Effect: "NoExecute"}])
	require.NotContains(t, sums, tracker.DriverEffect{Driver: "driver-0100", Effect: "NoExecute"})
}
