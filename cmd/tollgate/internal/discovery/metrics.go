package discovery

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Metrics are the metrics of a Keeper.
type Metrics struct {
	states *prometheus.GaugeVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_api_resources",
		Help: "1 for the state that a resource of the API server is in: unknown, unserved, served, denied, listing, watched or stale.",
	}, []string{"resource", "state"})}
	reg.MustRegister(m.states)
	return m
}

// set sets the gauge of the state of a resource.
func (m *Metrics) set(name schema.GroupResource, now state) {
	for _, s := range []state{stateUnknown, stateUnserved, stateServed, stateDenied, stateListing, stateWatched, stateStale} {
		value := 0.0
		if s == now {
			value = 1
		}
		m.states.WithLabelValues(name.Resource, string(s)).Set(value)
	}
}
