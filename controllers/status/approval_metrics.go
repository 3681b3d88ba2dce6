package status

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts used approvals. Its label is a closed set: the kinds of tracker.Source,
// and evictionpolicy.
type Metrics struct {
	used *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{used: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "tollgate_eviction_approvals_used_total",
		Help: "EvictionApprovals that were used, by the kind of what they are for: a write was let through that a limit of a TaintPolicy forbids, or a breaker let pods go. The leader counts them.",
	}, []string{"source"})}
}
