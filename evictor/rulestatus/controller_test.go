package rulestatus

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

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("every outcome is there from the start", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		NewMetrics(registry).writes.WithLabelValues(string(act.Denied)).Add(2)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tollgate_rule_status_writes_total Attempts to write the status of a DeviceTaintRule, by outcome.
# TYPE tollgate_rule_status_writes_total counter
tollgate_rule_status_writes_total{outcome="conflict"} 0
tollgate_rule_status_writes_total{outcome="denied"} 2
tollgate_rule_status_writes_total{outcome="gone"} 0
tollgate_rule_status_writes_total{outcome="invalid"} 0
tollgate_rule_status_writes_total{outcome="not_served"} 0
tollgate_rule_status_writes_total{outcome="throttled"} 0
tollgate_rule_status_writes_total{outcome="timeout"} 0
tollgate_rule_status_writes_total{outcome="unavailable"} 0
tollgate_rule_status_writes_total{outcome="written"} 0
`)))
	})
}

func TestAnswersReachOthers(t *testing.T) {
	t.Parallel()
	t.Run("pods that the answer to a write brings news for are passed on", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			key := w.pod("shop", "a")
			told := make(chan []tracker.Key, 10)
			w.options.PodsChanged = func(keys []tracker.Key) {
				if len(keys) > 0 {
					told <- keys
				}
			}
			w.start()
			w.setEffect("broken", none)
			w.pass(time.Minute)
			require.Empty(t, told)

			// A user makes it NoExecute, and our write comes before the watch tells of it.
			w.becomes("broken", noExecute)
			w.pod("shop", "b")
			w.pass(2 * time.Minute)
			require.NotEmpty(t, told)
			require.Contains(t, <-told, key)
		})
	})
}
