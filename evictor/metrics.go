package evictor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Metrics are the metrics of the evictor. Those of Kubernetes' own controllers keep their names, so
// that dashboards and alerts continue to work. They count only deletions by this evictor.
type Metrics struct {
	// ofNodes and ofDevices are the metrics of Kubernetes' two controllers.
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
	// evictor counts the pending evictions; nil before New.
	evictor atomic.Pointer[Evictor]
}

// deletions are the metrics of one of Kubernetes' controllers.
type deletions struct {
	total    prometheus.Counter
	duration prometheus.Histogram
}

// NewMetrics returns metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	duration := func(name, help string) prometheus.Histogram {
		return factory.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		})
	}
	m := &Metrics{
		ofNodes: deletions{
			total: counter("taint_eviction_controller_pod_deletions_total",
				"Total number of Pods deleted by TaintEvictionController since its start."),
			duration: duration("taint_eviction_controller_pod_deletion_duration_seconds",
				"Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController."),
		},
		ofDevices: deletions{
			total: counter("device_taint_eviction_controller_pod_deletions_total",
				"Total number of Pods deleted by DeviceTaintEvictionController since its start."),
			duration: duration("device_taint_eviction_controller_pod_deletion_duration_seconds",
				"Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via DeviceTaintEvictionController."),
		},
		evictions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_evictions_total",
			Help: "Evictions that ended, by the kind of the object with the taint, the method and the outcome: evicted, or overtaken if the pod was already gone or terminating.",
		}, []string{"source", "method", "outcome"}),
		lateness: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tollgate_eviction_lateness_seconds",
			Help:    "Time from the moment at which a pod was due until the API server accepted its deletion, in seconds.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"source"}),
		misfit: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_mode_misfit",
			Help: "1 while the state of the cluster does not fit eviction.mode, by reason.",
		}, []string{"reason"}),
		loops: counter("tollgate_eviction_loops_total",
			"Times that the pods of one controller were evicted again and again because of one taint."),
		retries: controller.NewCounter(reg, "tollgate_eviction_retries_total",
			"Attempts to evict a pod that Tollgate has to repeat, by reason.", "reason"),
		dropped: counter("tollgate_eviction_events_dropped_total",
			"Events about pods that were not written, because there were too many at once."),
		stamped: counter("tollgate_taints_stamped_total",
			"NoExecute taints of nodes without a time to which Tollgate added the time."),
		oddTimes: controller.NewCounter(reg, "tollgate_taint_times_odd_total",
			"NoExecute taints of nodes and DeviceTaintRules whose time differs by more than five minutes from the moment at which they appeared, by direction.",
			"direction"),
	}
	reg.MustRegister(m)
	for _, finding := range ModeFindings {
		m.misfit.WithLabelValues(finding.String())
	}
	return m
}

// carrierKinds are the kinds of objects that carry NoExecute taints.
var carrierKinds = []tracker.SourceKind{tracker.SourceNode, tracker.SourceSlice, tracker.SourceRule}

// The metrics that are computed at each scrape.
var (
	pendingDesc = prometheus.NewDesc("tollgate_evictions_pending",
		"Pods that have to leave now or later, by the kind of the object with the taint.", []string{"source"}, nil)
	heldDesc = prometheus.NewDesc("tollgate_evictions_held",
		"Pods that are due and held, by the kind of the object with the taint and the reason.", []string{"source", "reason"}, nil)
	overdueDesc = prometheus.NewDesc("tollgate_eviction_overdue_seconds",
		"Longest time for which a pod has been due that nothing holds, in seconds. 0 if there is no such pod, and on replicas that do not lead.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*Metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- pendingDesc
	descs <- heldDesc
	descs <- overdueDesc
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	var numbers counts
	if e := m.evictor.Load(); e != nil {
		numbers = e.counts()
	}
	for _, source := range carrierKinds {
		metrics <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(numbers.pending[source]), string(source))
		for _, reason := range checks.Reasons() {
			metrics <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(numbers.held[source][reason]), string(source), string(reason))
		}
	}
	metrics <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, numbers.overdue.Seconds())
}

// ended counts an eviction that has ended.
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
