package rulestatus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// Metrics counts writes by outcome.
type Metrics struct {
	writes *prometheus.CounterVec
}

// NewMetrics returns metrics of the status of rules registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{controller.NewCounter(reg, "tollgate_rule_status_writes_total",
		"Attempts to write the status of a DeviceTaintRule, by outcome.", "outcome", outcomes...)}
}

// NewPatchMetrics returns metrics of the status of patches registered with reg.
func NewPatchMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{controller.NewCounter(reg, "tollgate_patch_status_writes_total",
		"Attempts to write the eviction conditions of a ResourceSlicePatch, by outcome.", "outcome", outcomes...)}
}
