package evictor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Metrics counts what the evictor does. The two names that Kubernetes' own
// controller has are kept, so that dashboards and alerts work on; they count
// only deletions that the evictor itself asked for.
type Metrics struct {
	podDeletions *prometheus.CounterVec
	podDeletion  prometheus.Counter
	podDuration  prometheus.Histogram
	lateness     *prometheus.HistogramVec
	pending      *prometheus.GaugeVec
	retries      *prometheus.CounterVec
	dropped      prometheus.Counter
	stamped      prometheus.Counter
	oddTimes     *prometheus.CounterVec
}

// NewMetrics returns metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		podDeletion: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "taint_eviction_controller_pod_deletions_total",
			Help: "Total number of Pods deleted by TaintEvictionController since its start.",
		}),
		podDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "taint_eviction_controller_pod_deletion_duration_seconds",
			Help:    "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
		podDeletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_evictions_total",
			Help: "Evictions that came to an end, by the kind of object that carries the taint, the method, and the outcome: evicted, or overtaken because the pod was gone or terminating already.",
		}, []string{"source", "method", "outcome"}),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tollgate_eviction_lateness_seconds",
			Help:    "Time between the moment a pod had to leave and the moment its deletion was accepted.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"source"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_evictions_pending",
			Help: "Pods that have to leave, now or at a time that is set.",
		}, []string{"source"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_eviction_retries_total",
			Help: "Attempts to evict a pod that have to be repeated, by reason.",
		}, []string{"reason"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_eviction_events_dropped_total",
			Help: "Events on pods that were not written because there were too many at once.",
		}),
		stamped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_taints_stamped_total",
			Help: "NoExecute taints found on nodes without a time and given one.",
		}),
		oddTimes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_taint_times_odd_total",
			Help: "NoExecute taints whose time is far ahead of or far behind the moment they appeared.",
		}, []string{"direction"}),
	}
	reg.MustRegister(m.podDeletion, m.podDuration, m.podDeletions, m.lateness, m.pending, m.retries, m.dropped, m.stamped, m.oddTimes)
	m.pending.WithLabelValues(string(tracker.SourceNode)).Set(0)
	return m
}

// ended counts an eviction that came to an end.
func (m *Metrics) ended(source tracker.SourceKind, outcome Outcome, late time.Duration) {
	m.podDeletions.WithLabelValues(string(source), methodDelete, outcome.String()).Inc()
	if outcome != Evicted {
		return
	}
	late = max(late, 0)
	m.lateness.WithLabelValues(string(source)).Observe(late.Seconds())
	if source == tracker.SourceNode {
		m.podDeletion.Inc()
		m.podDuration.Observe(late.Seconds())
	}
}
