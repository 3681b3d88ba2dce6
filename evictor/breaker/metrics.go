package breaker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// The outcomes of a write.
const (
	outcomeWritten  = "written"
	outcomeConflict = "conflict"
	outcomeFailed   = "failed"
)

// Metrics count what breakers do. No label names a policy, so that the number of series does not
// depend on the objects of users: the status of a policy, events and the log tell which breaker is
// tripped.
type Metrics struct {
	tripped  prometheus.Gauge
	trips    prometheus.Counter
	releases *prometheus.CounterVec
	writes   *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	return &Metrics{
		tripped: with.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_breakers_tripped",
			Help: "EvictionPolicies whose breaker holds evictions. Only the leader counts them.",
		}),
		trips: with.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_breaker_trips_total",
			Help: "Times that the breaker of an EvictionPolicy began to hold evictions.",
		}),
		releases: controller.NewCounter(reg, "tollgate_breaker_releases_total",
			"Times that a breaker stopped holding evictions, by reason: the held evictions fit into the limit again (fits), or the limit was raised or removed (limit).",
			"reason", releasedAsFits, releasedByLimit),
		writes: controller.NewCounter(reg, "tollgate_breaker_writes_total",
			"Writes of the counts of breakers into EvictionPolicies, and of their releases into EvictionApprovals, by outcome.",
			"outcome", outcomeWritten, outcomeConflict, outcomeFailed),
	}
}

// written counts a write by its outcome.
func (m *Metrics) written(err error) {
	outcome := outcomeWritten
	switch {
	case apierrors.IsConflict(err):
		outcome = outcomeConflict
	case err != nil:
		outcome = outcomeFailed
	}
	m.writes.WithLabelValues(outcome).Inc()
}
