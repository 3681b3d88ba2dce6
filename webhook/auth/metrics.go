package auth

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// way is the kind of credential of a caller.
type way string

const (
	none          way = "none"
	byCertificate way = "certificate"
	byToken       way = "token"
)

// outcome is the treatment of a caller.
type outcome string

const (
	accepted outcome = "accepted"
	// answered is a caller that was answered though it is not known.
	answered outcome = "answered"
	refused  outcome = "refused"
)

// trust is the kind of keys that callers are verified by.
type trust string

const (
	trustKeys        trust = "keys"
	trustAuthorities trust = "authorities"
)

// CallerMetrics counts callers.
type CallerMetrics struct {
	callers *prometheus.CounterVec
	reads   *prometheus.CounterVec
}

// NewCallerMetrics registers the metrics with reg.
func NewCallerMetrics(reg prometheus.Registerer) *CallerMetrics {
	factory := promauto.With(reg)
	m := &CallerMetrics{
		callers: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_callers_total",
			Help: "Reviews by how the caller showed who it is (certificate, token, none) and what came of it " +
				"(accepted, answered though it is not known, refused).",
		}, []string{"way", "outcome"}),
		reads: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_caller_trust_reads_total",
			Help: "Readings of what callers are verified by (keys of the API server, authorities of client certificates), " +
				"by outcome (read, failed).",
		}, []string{"trust", "outcome"}),
	}
	for _, of := range []trust{trustKeys, trustAuthorities} {
		m.reads.WithLabelValues(string(of), "read")
		m.reads.WithLabelValues(string(of), "failed")
	}
	return m
}

func (m *CallerMetrics) count(by way, came outcome) {
	m.callers.WithLabelValues(string(by), string(came)).Inc()
}

func (m *CallerMetrics) read(of trust, err error) {
	outcome := "read"
	if err != nil {
		outcome = "failed"
	}
	m.reads.WithLabelValues(string(of), outcome).Inc()
}
