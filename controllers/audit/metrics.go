package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics shows the results of the leader.
type Metrics struct {
	violations prometheus.Gauge
	duration   prometheus.Gauge
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		violations: factory.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_policy_violations",
			Help: "Pods that stand although a TolerationPolicy would refuse them today, counted once for each such policy, as the leader last found.",
		}),
		duration: factory.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_policy_audit_duration_seconds",
			Help: "How long the last look at all pods took.",
		}),
	}
}
