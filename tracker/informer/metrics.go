package informer

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the labels reason and outcome.
const (
	restartSilent     = "silent"
	restartUnanswered = "unanswered"

	doubtConfirmed    = "confirmed"
	doubtContradicted = "contradicted"
	doubtUnanswered   = "unanswered"
)

var silenceDesc = prometheus.NewDesc("tollgate_cache_silence_seconds",
	"Time since the API server last sent an event or a bookmark on the watch of a resource, in seconds. It sends a bookmark about once a minute.",
	[]string{"resource"}, nil)

// Metrics says how a Guard finds the API server.
type Metrics struct {
	restarts *prometheus.CounterVec
	doubted  *prometheus.CounterVec

	mu sync.Mutex
	// followed are the lists and watches by resource, the latest of each.
	followed map[string]*guarded
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	m := &Metrics{
		restarts: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_watch_restarts_total",
			Help: "Watches that were restarted because the API server sent nothing, by resource and reason: silent, or unanswered if it did not accept the watch.",
		}, []string{"resource", "reason"}),
		doubted: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_relists_doubted_total",
			Help: "Lists without more than half of the known objects, by resource and the outcome of a second list (confirmed, contradicted, unanswered).",
		}, []string{"resource", "outcome"}),
		followed: map[string]*guarded{},
	}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) { descs <- silenceDesc }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	followed := maps.Clone(m.followed)
	m.mu.Unlock()
	for resource, g := range followed {
		if silence, listening := g.silence(); listening {
			metrics <- prometheus.MustNewConstMetric(silenceDesc, prometheus.GaugeValue, silence.Seconds(), resource)
		}
	}
}
