package snapshot

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// Metrics says which policies are in force.
type Metrics struct {
	policies *prometheus.GaugeVec
}

// NewMetrics registers the policy metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{policies: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_policies",
		Help: "Policies that this replica judges by, by kind and whether all of what they ask for is in force.",
	}, []string{"kind", "in_force"})}
}

func (m *Metrics) observe(set *tolerations.Set) {
	problems := len(set.Problems())
	m.policies.WithLabelValues("TolerationPolicy", "fully").Set(float64(set.Len() - problems))
	m.policies.WithLabelValues("TolerationPolicy", "partly").Set(float64(problems))
}
