package nodetaints

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label source.
const (
	sourceNode  = "node"
	sourceRule  = "rule"
	sourcePatch = "patch"
)

// TTLMetrics counts the removals of expired taints.
type TTLMetrics struct{ expired *prometheus.CounterVec }

// NewTTLMetrics registers the metrics with reg.
func NewTTLMetrics(reg prometheus.Registerer) *TTLMetrics {
	m := &TTLMetrics{expired: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "tollgate_expired_taints_total",
		Help: "Taints of nodes and ResourceSlicePatches, and DeviceTaintRules, that were removed because the ttl of a TaintPolicy was over.",
	}, []string{"source"})}
	m.expired.WithLabelValues(sourceNode)
	m.expired.WithLabelValues(sourceRule)
	m.expired.WithLabelValues(sourcePatch)
	return m
}
