package evictor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Metrics counts what the evictor does. The names that Kubernetes' own controllers
// have are kept, so that dashboards and alerts work on; they count only deletions
// that the evictor itself asked for.
type Metrics struct {
	// ofNodes and ofDevices are what Kubernetes counts, for taints of either.
	ofNodes   deletions
	ofDevices deletions
	evictions *prometheus.CounterVec
	lateness  *prometheus.HistogramVec
	misfit    *prometheus.GaugeVec
	loops     prometheus.Counter
	retries   *prometheus.CounterVec
	dropped   prometheus.Counter
	stamped   prometheus.Counter
	oddTimes  *prometheus.CounterVec
	// counts returns the numbers of the book; nil before there is an evictor.
	counts atomic.Pointer[func() counts]
}

// deletions are the metrics of one of Kubernetes' controllers.
type deletions struct {
	total    prometheus.Counter
	duration prometheus.Histogram
}

func newDeletions(factory promauto.Factory, total prometheus.CounterOpts, duration prometheus.HistogramOpts) deletions {
	duration.Buckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
	return deletions{total: factory.NewCounter(total), duration: factory.NewHistogram(duration)}
}

// NewMetrics returns metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	m := &Metrics{
		ofNodes: newDeletions(factory, prometheus.CounterOpts{
			Name: "taint_eviction_controller_pod_deletions_total",
			Help: "Total number of Pods deleted by TaintEvictionController since its start.",
		}, prometheus.HistogramOpts{
			Name: "taint_eviction_controller_pod_deletion_duration_seconds",
			Help: "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
		}),
		ofDevices: newDeletions(factory, prometheus.CounterOpts{
			Name: "device_taint_eviction_controller_pod_deletions_total",
			Help: "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
		}, prometheus.HistogramOpts{
			Name: "device_taint_eviction_controller_pod_deletion_duration_seconds",
			Help: "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController.",
		}),
		evictions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_evictions_total",
			Help: "Evictions that came to an end, by the kind of object that carries the taint, the method, and the outcome: evicted, or overtaken because the pod was gone or terminating already.",
		}, []string{"source", "method", "outcome"}),
		lateness: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tollgate_eviction_lateness_seconds",
			Help:    "Time between the moment a pod had to leave and the moment its deletion was accepted.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"source"}),
		misfit: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_mode_misfit",
			Help: "1 while what the cluster does does not fit the mode of Tollgate, by what is wrong.",
		}, []string{"reason"}),
		loops: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_eviction_loops_total",
			Help: "Times that pods of one controller were found to be evicted again and again because of one taint.",
		}),
		retries: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_eviction_retries_total",
			Help: "Attempts to evict a pod that have to be repeated, by reason.",
		}, []string{"reason"}),
		dropped: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_eviction_events_dropped_total",
			Help: "Events on pods that were not written because there were too many at once.",
		}),
		stamped: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_taints_stamped_total",
			Help: "NoExecute taints found on nodes without a time and given one.",
		}),
		oddTimes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_taint_times_odd_total",
			Help: "NoExecute taints of nodes and of DeviceTaintRules whose time is far ahead of or far behind the moment they appeared.",
		}, []string{"direction"}),
	}
	reg.MustRegister(BookCollector{m})
	for _, finding := range ModeFindings {
		m.misfit.WithLabelValues(finding.String()).Set(0)
	}
	return m
}

// carrierKinds are the kinds of objects that carry NoExecute taints.
var carrierKinds = []tracker.SourceKind{tracker.SourceNode, tracker.SourceSlice, tracker.SourceRule}

// The metrics that are computed from the book at each scrape.
var (
	pendingDesc = prometheus.NewDesc("tollgate_evictions_pending",
		"Pods that have to leave, now or at a time that is set.", []string{"source"}, nil)
	heldDesc = prometheus.NewDesc("tollgate_evictions_held",
		"Pods that have to leave by now and are held, by the kind of object that carries the taint and by what holds them.", []string{"source", "reason"}, nil)
	overdueDesc = prometheus.NewDesc("tollgate_eviction_overdue_seconds",
		"For how long the pod has had to leave that should have left first, of the pods that nothing holds. 0 when there is none, and on replicas that do not lead.", nil, nil)
)

// BookCollector computes the numbers of pending and held evictions at each scrape.
type BookCollector struct{ of *Metrics }

// Describe implements prometheus.Collector.
func (BookCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- pendingDesc
	descs <- heldDesc
	descs <- overdueDesc
}

// Collect implements prometheus.Collector.
func (c BookCollector) Collect(metrics chan<- prometheus.Metric) {
	var numbers counts
	if of := c.of.counts.Load(); of != nil {
		numbers = (*of)()
	}
	for _, source := range carrierKinds {
		metrics <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(numbers.pending[source]), string(source))
		for _, reason := range checks.Reasons() {
			metrics <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(numbers.held[source][reason]), string(source), string(reason))
		}
	}
	metrics <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, numbers.overdue.Seconds())
}

// ended counts an eviction that came to an end.
func (m *Metrics) ended(source tracker.SourceKind, how act.Method, outcome act.Outcome, late time.Duration) {
	m.evictions.WithLabelValues(string(source), string(how), string(outcome)).Inc()
	if outcome != act.Evicted {
		return
	}
	seconds := max(late, 0).Seconds()
	m.lateness.WithLabelValues(string(source)).Observe(seconds)
	counted := m.ofNodes
	if source.OnDevice() {
		counted = m.ofDevices
	}
	counted.total.Inc()
	counted.duration.Observe(seconds)
}
