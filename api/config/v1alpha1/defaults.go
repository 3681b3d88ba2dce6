package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default returns the configuration of an empty file. Files are decoded into it, so that
// an explicit zero stays zero and is validated.
//
// The defaults suit several replicas. Metrics and health are served on loopback addresses
// only: every client that reaches them there can read them.
func Default() *TollgateConfiguration {
	const tolerationSeconds = 300 // the API server's own default
	return &TollgateConfiguration{
		Namespace: "tollgate-system",
		Webhook: WebhookConfiguration{
			BindAddress:      ":9443",
			Registration:     RegistrationManual,
			FailurePolicy:    FailurePolicyFail,
			Budget:           duration(time.Second),
			DrainPeriod:      duration(5 * time.Second),
			MaxInFlightBytes: 32 << 20,
			Authentication: AuthenticationConfiguration{
				// By default, an API server sends no credentials.
				Mode:   AuthenticationOptional,
				Tokens: WebhookTokensConfiguration{Enabled: true},
			},
		},
		Certificates: CertificatesConfiguration{
			Mode:            CertificatesSecret,
			SecretName:      "tollgate-serving-certificate",
			ServiceName:     "tollgate",
			CADuration:      duration(365 * 24 * time.Hour),
			ServingDuration: duration(30 * 24 * time.Hour),
		},
		Admission: AdmissionConfiguration{
			MaxTimeAddedSkew:                    duration(time.Minute),
			DefaultNotReadyTolerationSeconds:    tolerationSeconds,
			DefaultUnreachableTolerationSeconds: tolerationSeconds,
		},
		Eviction: EvictionConfiguration{Mode: EvictionReplace, Workers: 64},
		LeaderElection: LeaderElectionConfiguration{
			Enabled:       true,
			LeaseDuration: duration(15 * time.Second),
			RenewDeadline: duration(10 * time.Second),
			RetryPeriod:   duration(2 * time.Second),
		},
		ClientConnection: ClientConnectionConfiguration{QPS: 400, Burst: 800, WatchSilence: duration(150 * time.Second)},
		Metrics:          MetricsConfiguration{BindAddress: "127.0.0.1:8080", Authorization: MetricsAuto},
		Tracing:          TracingConfiguration{Endpoint: "localhost:4317"}, // the port of OTLP over gRPC
		Health:           EndpointConfiguration{BindAddress: "127.0.0.1:8081"},
	}
}

func duration(d time.Duration) metav1.Duration {
	return metav1.Duration{Duration: d}
}
