package rulestatus

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what becomes of writes.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics returns metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_rule_status_writes_total",
			Help: "Attempts to write the status of a DeviceTaintRule, by outcome.",
		}, []string{"outcome"}),
	}
	reg.MustRegister(m.writes)
	for _, o := range outcomes() {
		m.writes.WithLabelValues(string(o))
	}
	return m
}
