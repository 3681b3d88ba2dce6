package devicetaints

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

// Metrics counts the writes of paired rules and the taints without one.
type Metrics struct {
	writes *prometheus.CounterVec
	left   prometheus.Gauge
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_noschedule_pair_writes_total",
			Help: "DeviceTaintRules that were written so that pods with a toleration that ends do not come back to a device.",
		}, []string{"operation"}),
		left: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_noschedule_unpaired_devices",
			Help: "Taints of effect NoExecute, published by drivers, that have no NoSchedule taint beside them because there are too many.",
		}),
	}
	for _, operation := range []string{operationCreate, operationUpdate, operationDelete} {
		m.writes.WithLabelValues(operation)
	}
	return m
}
