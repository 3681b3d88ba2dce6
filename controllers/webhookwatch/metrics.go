package webhookwatch

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// configuration is a value of the label configuration, a closed set.
type configuration string

const (
	validating configuration = "validating"
	mutating   configuration = "mutating"
)

// kind returns the kind of the object.
func (c configuration) kind() string {
	if c == validating {
		return "ValidatingWebhookConfiguration"
	}
	return "MutatingWebhookConfiguration"
}

// change is a value of the label change, a closed set.
type change string

const (
	changeCreated change = "created"
	changeEdited  change = "edited"
	changeDeleted change = "deleted"
)

// Metrics shows whether the API server calls Tollgate.
type Metrics struct {
	registered *prometheus.GaugeVec
	changes    *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	m := &Metrics{
		registered: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_webhooks_registered",
			Help: "Webhooks in the configuration by which the API server calls Tollgate, as the leader sees it: 0 if it is missing.",
		}, []string{"configuration"}),
		changes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_webhook_configuration_changes_total",
			Help: "Changes of the configuration by which the API server calls Tollgate, but for what Tollgate writes itself, that the leader saw.",
		}, []string{"configuration", "change"}),
	}
	for _, c := range []configuration{validating, mutating} {
		for _, what := range []change{changeCreated, changeEdited, changeDeleted} {
			m.changes.WithLabelValues(string(c), string(what))
		}
	}
	return m
}
