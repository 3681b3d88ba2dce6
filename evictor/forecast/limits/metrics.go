package limits

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Metrics counts what was let through. Its label is a closed set, the kinds of
// tracker.Source.
type Metrics struct {
	used *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{used: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "tollgate_eviction_approvals_used_total",
		Help: "EvictionApprovals by which a write was let through that a limit of a TaintPolicy forbids.",
	}, []string{"source"})}
}

func (m *Metrics) approvals(source tracker.SourceKind, used int) {
	m.used.WithLabelValues(string(source)).Add(float64(used))
}
