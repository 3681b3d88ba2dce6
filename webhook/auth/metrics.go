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

// The kinds of keys that callers are verified by.
const (
	trustKeys        = "keys"
	trustAuthorities = "authorities"
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
			Help: "Reviews by the credential of the caller (certificate, token, none) and the outcome: accepted, answered " +
				"without an accepted credential, or refused.",
		}, []string{"way", "outcome"}),
		reads: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_caller_trust_reads_total",
			Help: "Reads of the keys of the API server and the CAs of client certificates, with which callers are verified, " +
				"by outcome (read, failed).",
		}, []string{"trust", "outcome"}),
	}
	for _, of := range []string{trustKeys, trustAuthorities} {
		m.reads.WithLabelValues(of, "read")
		m.reads.WithLabelValues(of, "failed")
	}
	return m
}

func (m *CallerMetrics) count(by way, came outcome) {
	m.callers.WithLabelValues(string(by), string(came)).Inc()
}

func (m *CallerMetrics) read(of string, err error) {
	outcome := "read"
	if err != nil {
		outcome = "failed"
	}
	m.reads.WithLabelValues(of, outcome).Inc()
}
