package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default fills what is not set. A replica that runs beside others is assumed,
// and metrics and health are served on loopback only: they are open to everyone
// who can reach them.
func (c *TollgateConfiguration) Default() {
	setString(&c.Namespace, "tollgate-system")
	c.Webhook.setDefaults()
	c.Certificates.setDefaults()
	c.Admission.setDefaults()
	if c.Eviction.Workers == 0 {
		c.Eviction.Workers = 16
	}
	c.LeaderElection.setDefaults()
	if c.ClientConnection.QPS == 0 {
		c.ClientConnection.QPS = 400
	}
	if c.ClientConnection.Burst == 0 {
		c.ClientConnection.Burst = 800
	}
	setString(&c.Metrics.BindAddress, "127.0.0.1:8080")
	setString(&c.Health.BindAddress, "127.0.0.1:8081")
}

func (c *WebhookConfiguration) setDefaults() {
	setString(&c.BindAddress, ":9443")
	setDuration(&c.Budget, time.Second)
	if c.MaxInFlightBytes == 0 {
		c.MaxInFlightBytes = 64 << 20
	}
}

func (c *CertificatesConfiguration) setDefaults() {
	if c.Mode == "" {
		c.Mode = CertificatesSecret
	}
	setString(&c.SecretName, "tollgate-serving-certificate")
	setString(&c.ServiceName, "tollgate")
	setDuration(&c.CADuration, 365*24*time.Hour)
	setDuration(&c.ServingDuration, 30*24*time.Hour)
}

func (c *AdmissionConfiguration) setDefaults() {
	const seconds = 300 // the API server's own default
	setDuration(&c.MaxTimeAddedSkew, time.Minute)
	if c.DefaultNotReadyTolerationSeconds == nil {
		c.DefaultNotReadyTolerationSeconds = new(int64(seconds))
	}
	if c.DefaultUnreachableTolerationSeconds == nil {
		c.DefaultUnreachableTolerationSeconds = new(int64(seconds))
	}
}

func (c *LeaderElectionConfiguration) setDefaults() {
	if c.Enabled == nil {
		c.Enabled = new(true)
	}
	setDuration(&c.LeaseDuration, 15*time.Second)
	setDuration(&c.RenewDeadline, 10*time.Second)
	setDuration(&c.RetryPeriod, 2*time.Second)
}

func setString(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

func setDuration(value *metav1.Duration, fallback time.Duration) {
	if value.Duration == 0 {
		value.Duration = fallback
	}
}
