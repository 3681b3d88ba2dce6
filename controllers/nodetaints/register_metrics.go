package nodetaints

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label why.
const (
	whyReconciled = "reconciled"
	whyRestored   = "restored"
)

// RegisterMetrics counts the registered taints that nodes got or lack.
type RegisterMetrics struct {
	taints         *prometheus.CounterVec
	intolerantPods prometheus.Counter
	heldNodes      prometheus.Gauge
}

// NewRegisterMetrics registers the metrics with reg.
func NewRegisterMetrics(reg prometheus.Registerer) *RegisterMetrics {
	factory := promauto.With(reg)
	m := &RegisterMetrics{
		taints: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_registered_taints_total",
			Help: "Taints that were added to nodes as TaintPolicies register them, because the policy keeps them there or because the node was created without.",
		}, []string{"why"}),
		intolerantPods: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_slipped_pods_total",
			Help: "Pods found on nodes that were created without a registered taint, and that do not tolerate it.",
		}),
		heldNodes: factory.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_held_registrations",
			Help: "Nodes that are not given a registered taint of effect NoExecute, because a limit of a TaintPolicy forbids to evict so many pods.",
		}),
	}
	m.taints.WithLabelValues(whyReconciled)
	m.taints.WithLabelValues(whyRestored)
	return m
}
