package evictor

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/tracker"
)

// sum returns what was observed in a histogram, in sum over all labels.
func (w *world) sum(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			sum += metric.GetHistogram().GetSampleSum()
		}
	}
	return sum
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("NE-23 NE-24 deletions and their lateness, in seconds, have the names that Kubernetes gave them", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		metrics := NewMetrics(registry)
		metrics.ended(tracker.SourceNode, act.Delete, act.Evicted, 1500*time.Millisecond)
		metrics.ended(tracker.SourceNode, act.Delete, act.Evicted, -time.Second)
		metrics.ended(tracker.SourceNode, act.Delete, act.Gone, time.Hour)
		metrics.ended(tracker.SourceNode, act.Delete, act.Terminating, time.Hour)
		want := `
# HELP taint_eviction_controller_pod_deletion_duration_seconds Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.
# TYPE taint_eviction_controller_pod_deletion_duration_seconds histogram
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.005"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.025"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.1"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.5"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="1"} 1
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="2.5"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="10"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="30"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="60"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="120"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="180"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="240"} 2
taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="+Inf"} 2
taint_eviction_controller_pod_deletion_duration_seconds_sum 1.5
taint_eviction_controller_pod_deletion_duration_seconds_count 2
# HELP taint_eviction_controller_pod_deletions_total Total number of Pods deleted by TaintEvictionController since its start.
# TYPE taint_eviction_controller_pod_deletions_total counter
taint_eviction_controller_pod_deletions_total 2
# HELP tollgate_evictions_total Evictions that ended, by the kind of the object with the taint, the method and the outcome: evicted, or overtaken if the pod was already gone or terminating.
# TYPE tollgate_evictions_total counter
tollgate_evictions_total{method="delete",outcome="evicted",source="node"} 2
tollgate_evictions_total{method="delete",outcome="gone",source="node"} 1
tollgate_evictions_total{method="delete",outcome="terminating",source="node"} 1
`
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want),
			"taint_eviction_controller_pod_deletion_duration_seconds", "taint_eviction_controller_pod_deletions_total", "tollgate_evictions_total"))
	})

	t.Run("DE-57 DE-58 DE-45 those because of devices have theirs, in seconds, and count what we deleted", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		metrics := NewMetrics(registry)
		metrics.ended(tracker.SourceRule, act.Delete, act.Evicted, 1500*time.Millisecond)
		metrics.ended(tracker.SourceSlice, act.Delete, act.Evicted, 20*time.Second)
		metrics.ended(tracker.SourceRule, act.Delete, act.Gone, time.Hour)
		metrics.ended(tracker.SourceSlice, act.Delete, act.Terminating, time.Hour)
		want := `
# HELP device_taint_eviction_controller_pod_deletion_duration_seconds Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.
# TYPE device_taint_eviction_controller_pod_deletion_duration_seconds histogram
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.005"} 0
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.025"} 0
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.1"} 0
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="0.5"} 0
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="1"} 0
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="2.5"} 1
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="10"} 1
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="30"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="60"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="120"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="180"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="240"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_bucket{le="+Inf"} 2
device_taint_eviction_controller_pod_deletion_duration_seconds_sum 21.5
device_taint_eviction_controller_pod_deletion_duration_seconds_count 2
# HELP device_taint_eviction_controller_pod_deletions_total Total number of Pods deleted by DeviceTaintEvictionController since its start.
# TYPE device_taint_eviction_controller_pod_deletions_total counter
device_taint_eviction_controller_pod_deletions_total 2
# HELP taint_eviction_controller_pod_deletions_total Total number of Pods deleted by TaintEvictionController since its start.
# TYPE taint_eviction_controller_pod_deletions_total counter
taint_eviction_controller_pod_deletions_total 0
# HELP tollgate_evictions_total Evictions that ended, by the kind of the object with the taint, the method and the outcome: evicted, or overtaken if the pod was already gone or terminating.
# TYPE tollgate_evictions_total counter
tollgate_evictions_total{method="delete",outcome="evicted",source="devicetaintrule"} 1
tollgate_evictions_total{method="delete",outcome="evicted",source="resourceslice"} 1
tollgate_evictions_total{method="delete",outcome="gone",source="devicetaintrule"} 1
tollgate_evictions_total{method="delete",outcome="terminating",source="resourceslice"} 1
`
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want),
			"device_taint_eviction_controller_pod_deletion_duration_seconds", "device_taint_eviction_controller_pod_deletions_total",
			"taint_eviction_controller_pod_deletions_total", "tollgate_evictions_total"))
	})

	t.Run("what is pending is there for every source from the start", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		NewMetrics(registry)
		count, err := testutil.GatherAndCount(registry, "tollgate_evictions_pending")
		require.NoError(t, err)
		require.Equal(t, 3, count)
	})

	t.Run("DE-58 NE-24 lateness because of devices is counted from the moment the pod had to leave", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			podWithDevice(w, tolerated("gpu", 60))
			w.set(newRule("r", "", deviceTaint("gpu")))
			w.api.setFaults(first(1, is("delete pods"), errBusy), nil)
			w.start()
			w.pass(time.Hour)
			require.InDelta(w.t, 7, w.sum("device_taint_eviction_controller_pod_deletion_duration_seconds"), 0.01)
			require.InDelta(w.t, 1, w.value("tollgate_eviction_lateness_seconds", "source=devicetaintrule"), 0)
		})
	})

	t.Run("DE-58 NE-24 lateness is that for the reason that was confirmed, whichever came first", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("disk"))
			w.set(newRule("r", "", deviceTaint("gpu")))
			w.set(newClaim("c", "gpu-0", tolerated("gpu", 60), "a"))
			w.setPod(using(newPod("a", "n", tolerationFor("disk", 30)), "c"))
			w.api.setFaults(every(is("get nodes n"), errDenied), nil)
			w.pass(seconds(100))
			w.start()
			w.leaves(podA)
			require.InDelta(w.t, 39, w.sum("device_taint_eviction_controller_pod_deletion_duration_seconds"), 0.01)
			require.InDelta(w.t, 39, w.sum("tollgate_eviction_lateness_seconds"), 0.01)
			require.InDelta(w.t, 1, w.value("tollgate_eviction_lateness_seconds", "source=devicetaintrule"), 0)
			require.Zero(w.t, w.value("taint_eviction_controller_pod_deletions_total"))
		})
	})

	t.Run("NE-24 lateness is counted from the moment the pod had to leave", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.setNode("n", noExecute("gpu"))
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.api.setFaults(first(1, is("delete pods"), errBusy), nil)
			w.start()
			w.pass(time.Hour)
			require.InDelta(w.t, 7, w.sum("taint_eviction_controller_pod_deletion_duration_seconds"), 0.01)
		})
	})

	t.Run("they are without fault for promlint", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		metrics := NewMetrics(registry)
		metrics.ended(tracker.SourceNode, act.Delete, act.Evicted, 0)
		metrics.ended(tracker.SourceRule, act.Delete, act.Evicted, 0)
		metrics.retries.WithLabelValues(string(act.Denied)).Inc()
		metrics.oddTimes.WithLabelValues(directionPast).Inc()
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}
