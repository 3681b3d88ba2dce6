package slicepatches

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label operation.
const (
	operationCreate = "create"
	operationUpdate = "update"
	operationDelete = "delete"
)

// Metrics counts the writes of rules.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_patch_rule_writes_total",
			Help: "DeviceTaintRules that were written for the taints of ResourceSlicePatches.",
		}, []string{"operation"}),
	}
	for _, operation := range []string{operationCreate, operationUpdate, operationDelete} {
		m.writes.WithLabelValues(operation)
	}
	return m
}
