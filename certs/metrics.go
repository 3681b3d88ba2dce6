package certs

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The values of the label certificate.
const (
	kindCA      = "ca"
	kindServing = "serving"
)

// The values of the label reason.
const (
	reasonSecretRead           = "secret_read"
	reasonSecretWrite          = "secret_write"
	reasonSecretInvalid        = "secret_invalid"
	reasonSecretForeign        = "secret_foreign"
	reasonConfigurationRead    = "configuration_read"
	reasonConfigurationWrite   = "configuration_write"
	reasonConfigurationMissing = "configuration_missing"
	reasonFilesRead            = "files_read"
	reasonFilesInvalid         = "files_invalid"
	reasonFilesUntrusted       = "files_untrusted"
	reasonExpired              = "expired"
	reasonIssue                = "issue"
	reasonWatch                = "watch"
)

var reasons = []string{
	reasonSecretRead, reasonSecretWrite, reasonSecretInvalid, reasonSecretForeign,
	reasonConfigurationRead, reasonConfigurationWrite, reasonConfigurationMissing,
	reasonFilesRead, reasonFilesInvalid, reasonFilesUntrusted, reasonExpired, reasonIssue, reasonWatch,
}

// Metrics has the lifetimes of certificates, and counts renewals and errors.
type Metrics struct {
	expiry   *prometheus.GaugeVec
	lifetime *prometheus.GaugeVec
	renewals *prometheus.CounterVec
	errors   *prometheus.CounterVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	m := &Metrics{
		expiry: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_certificate_expiry_timestamp_seconds",
			Help: "Time at which the serving certificate of this replica, or the CA that signs, expires, in seconds since the epoch.",
		}, []string{"certificate"}),
		lifetime: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_certificate_lifetime_seconds",
			Help: "Time between the beginning and the end of the validity of the certificate, in seconds. Tollgate renews its own certificates when a third of this time is left.",
		}, []string{"certificate"}),
		renewals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_certificate_renewals_total",
			Help: "Certificates that this replica issued or, if they come from files, began to use.",
		}, []string{"certificate"}),
		errors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_certificate_errors_total",
			Help: "Errors that prevented a certificate from being issued, stored, published or used, by reason.",
		}, []string{"reason"}),
	}
	// A rate needs a first sample of zero.
	for _, r := range reasons {
		m.errors.WithLabelValues(r)
	}
	return m
}

func (m *Metrics) valid(kind string, certificate *x509.Certificate) {
	m.expiry.WithLabelValues(kind).Set(float64(certificate.NotAfter.Unix()))
	m.lifetime.WithLabelValues(kind).Set(certificate.NotAfter.Sub(certificate.NotBefore).Seconds())
}

// reporter counts each occurrence of a problem but logs it only when it is new or
// different, so that a lasting fault does not fill the log. It is not goroutine-safe.
type reporter struct {
	metrics *Metrics
	// logged is the last logged error of each current problem, by reason and object.
	logged map[string]string
}

// check reports err as a problem of an object, and returns it. Without an error the
// problem, if there was one, is over, and is logged again when it recurs.
func (r *reporter) check(ctx context.Context, why, object string, err error) error {
	problem := why + "/" + object
	last, lasts := r.logged[problem]
	switch {
	case err == nil && lasts:
		delete(r.logged, problem)
		log.FromContext(ctx).Info("certificate problem is over", "reason", why, "object", object)
	case err == nil || errors.Is(ctx.Err(), context.Canceled):
		// Requests that shutdown cancels are no problem.
	default:
		r.metrics.errors.WithLabelValues(why).Inc()
		if last != err.Error() {
			r.logged[problem] = err.Error()
			log.FromContext(ctx).Error(err, "certificates need attention", "reason", why, "object", object)
		}
	}
	return err
}
