package rulestatus

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestNew(t *testing.T) {
	t.Parallel()
	whole := func() Options {
		return Options{
			Objects: Objects{Tracker: tracker.New(), Applier: &Applier{}}, Synced: func() bool { return true }, Clock: clock.RealClock{},
			Evictor: Evictor{Decide: leaves, Evicted: func(types.UID) int { return 0 }, Forget: func(types.UID) {}},
			Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
		}
	}

	t.Run("it needs all that it has no default for", func(t *testing.T) {
		t.Parallel()
		for name, drop := range map[string]func(*Options){
			"tracker":     func(o *Options) { o.Tracker = nil },
			"synced":      func(o *Options) { o.Synced = nil },
			"applier":     func(o *Options) { o.Applier = nil },
			"clock":       func(o *Options) { o.Clock = nil },
			"decide":      func(o *Options) { o.Decide = nil },
			"evicted":     func(o *Options) { o.Evicted = nil },
			"forget":      func(o *Options) { o.Forget = nil },
			"metrics":     func(o *Options) { o.Metrics = nil },
			"local clock": func(o *Options) { o.Clock = &offClock{} },
		} {
			options := whole()
			drop(&options)
			_, err := New(options)
			require.ErrorContains(t, err, name)
		}
	})

	t.Run("the rest has defaults", func(t *testing.T) {
		t.Parallel()
		c, err := New(whole())
		require.NoError(t, err)
		require.Equal(t, DefaultWorkers, c.options.Workers)
		require.Equal(t, DefaultAttemptTimeout, c.options.AttemptTimeout)
		require.Equal(t, clock.RealClock{}, c.options.Local)
		require.True(t, c.options.Leads())
		require.NotPanics(t, func() { c.options.PodsChanged(nil) })
	})

	t.Run("what is set is not replaced", func(t *testing.T) {
		t.Parallel()
		options := whole()
		options.Workers, options.AttemptTimeout, options.Local = 1, time.Second, clock.RealClock{}
		options.Clock, options.Leads = &offClock{}, func() bool { return false }
		c, err := New(options)
		require.NoError(t, err)
		require.Equal(t, 1, c.options.Workers)
		require.Equal(t, time.Second, c.options.AttemptTimeout)
		require.False(t, c.options.Leads())
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("every outcome is there from the start", func(t *testing.T) {
		t.Parallel()
		registry := prometheus.NewPedanticRegistry()
		NewMetrics(registry).writes.WithLabelValues(string(outcomeDenied)).Add(2)
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
