package nodetaints

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label operation.
const (
	operationAdd    = "add"
	operationChange = "change"
	operationRemove = "remove"
)

// PairingMetrics counts the writes of paired taints.
type PairingMetrics struct {
	writes *prometheus.CounterVec
}

// NewPairingMetrics registers the metrics with reg.
func NewPairingMetrics(reg prometheus.Registerer) *PairingMetrics {
	m := &PairingMetrics{
		writes: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_node_twin_writes_total",
			Help: "NoSchedule taints that were written beside NoExecute taints of nodes, so that evicted pods do not come back.",
		}, []string{"operation"}),
	}
	for _, operation := range []string{operationAdd, operationChange, operationRemove} {
		m.writes.WithLabelValues(operation)
	}
	return m
}
