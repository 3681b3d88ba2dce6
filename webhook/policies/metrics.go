package policies

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Metrics says which policies are in force.
type Metrics struct {
	policies *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
	blind    *prometheus.CounterVec
}

// NewMetrics registers the policy metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		policies: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_policies",
			Help: "Policies that this replica evaluates, by kind and whether they are in force fully or partly.",
		}, []string{"kind", "in_force"}),
		stale: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_policies_stale",
			Help: "1 while the API server does not return the policies of a kind, and the last known policies stay in force.",
		}, []string{"kind"}),
		blind: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_policies_watch_blind_total",
			Help: "Times that the watch of policies of a kind missed stored changes, so that the policies were read from the API server.",
		}, []string{"kind"}),
	}
}

func (m *Metrics) observe(k *policyset.Kind, fully, partly int) {
	m.policies.WithLabelValues(k.Name, "fully").Set(float64(fully))
	m.policies.WithLabelValues(k.Name, "partly").Set(float64(partly))
}

func (m *Metrics) setStale(k *policyset.Kind, stale bool) {
	value := 0.0
	if stale {
		value = 1
	}
	m.stale.WithLabelValues(k.Name).Set(value)
}
