package v1alpha1

import (
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind are the values of apiVersion and kind in the file.
const (
	APIVersion = "config.tollgate.dev/v1alpha1"
	Kind       = "TollgateConfiguration"
)

// TollgateConfiguration is the configuration of tollgate serve. Every field has a
// default.
type TollgateConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace is the namespace of the Lease and the Secret of Tollgate. Defaults to
	// tollgate-system.
	Namespace string `json:"namespace,omitempty"`
	// Webhook configures the admission endpoints.
	Webhook WebhookConfiguration `json:"webhook,omitzero"`
	// Certificates configures the source of the serving certificate.
	Certificates CertificatesConfiguration `json:"certificates,omitzero"`
	// Admission configures the built-in rules.
	Admission AdmissionConfiguration `json:"admission,omitzero"`
	// Audit configures the search for existing pods that a policy would refuse today.
	Audit AuditConfiguration `json:"audit,omitzero"`
	// Eviction configures evictions.
	Eviction EvictionConfiguration `json:"eviction,omitzero"`
	// LeaderElection configures the election of the replica that evicts and writes.
	LeaderElection LeaderElectionConfiguration `json:"leaderElection,omitzero"`
	// ClientConnection limits the requests to the API server.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection,omitzero"`
	// Metrics configures the endpoint /metrics.
	Metrics MetricsConfiguration `json:"metrics,omitzero"`
	// Tracing configures OpenTelemetry traces.
	Tracing TracingConfiguration `json:"tracing,omitzero"`
	// Health configures the endpoints /healthz and /readyz.
	Health EndpointConfiguration `json:"health,omitzero"`
	// FeatureGates enables and disables features by name. Features that are not named
	// have their default.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// WebhookConfiguration configures the admission endpoints.
type WebhookConfiguration struct {
	// BindAddress is host:port of the HTTPS listener. Defaults to :9443.
	BindAddress string `json:"bindAddress,omitempty"`
	// URL is the address https://host:port at which the API server reaches a Tollgate
	// outside of the cluster. Tollgate registers the webhooks by this URL. If empty, they
	// are registered by Service.
	URL string `json:"url,omitempty"`
	// Registration decides which program writes the webhooks: Manual or Managed. Defaults
	// to Manual.
	Registration RegistrationMode `json:"registration,omitempty"`
	// FailurePolicy is the failurePolicy that Managed registers for judged requests while
	// no replica answers: Fail refuses them, Ignore allows them. Defaults to Fail.
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// ExcludedNamespaces lists namespaces whose requests Tollgate does not judge with
	// Managed, in addition to kube-system and the namespace of Tollgate.
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// Budget is the maximum time for the evaluation of one review. Defaults to 1s.
	Budget metav1.Duration `json:"budget,omitzero"`
	// DrainPeriod is the time for which a terminating replica answers reviews while it is
	// not ready, so that API servers can stop sending reviews to it. It must be shorter
	// than the grace period of the pod. Defaults to 5s.
	DrainPeriod metav1.Duration `json:"drainPeriod,omitzero"`
	// MaxInFlightBytes is the maximum total size of the bodies of concurrent reviews.
	// Defaults to 32 MiB; the minimum is 16 MiB.
	MaxInFlightBytes int64 `json:"maxInFlightBytes,omitempty"`
	// Authentication configures the authentication of callers.
	Authentication AuthenticationConfiguration `json:"authentication,omitzero"`
}

// RegistrationMode decides which program writes the webhooks by which the API server
// calls Tollgate.
type RegistrationMode string

// The registration modes.
const (
	// RegistrationManual leaves the webhooks as they are installed, except for caBundle
	// and URL, which Tollgate writes.
	RegistrationManual RegistrationMode = "Manual"
	// RegistrationManaged lets the leader write the webhooks that the policies in force
	// need into the two installed configurations. Tollgate never creates these
	// configurations. The mode requires certificates.mode Secret.
	RegistrationManaged RegistrationMode = "Managed"
)

// FailurePolicy is the failurePolicy of webhooks.
type FailurePolicy string

// The failure policies.
const (
	FailurePolicyFail   FailurePolicy = "Fail"
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// AuthenticationMode decides about callers without accepted credentials.
type AuthenticationMode string

// The authentication modes.
const (
	// AuthenticationOff ignores credentials.
	AuthenticationOff AuthenticationMode = "Off"
	// AuthenticationOptional answers all callers, and counts those that Required would
	// refuse.
	AuthenticationOptional AuthenticationMode = "Optional"
	// AuthenticationRequired refuses callers without accepted credentials.
	AuthenticationRequired AuthenticationMode = "Required"
)

// AuthenticationConfiguration configures the accepted credentials of callers. One
// accepted credential is enough.
type AuthenticationConfiguration struct {
	// Mode is Off, Optional or Required. Defaults to Optional.
	Mode AuthenticationMode `json:"mode,omitempty"`
	// ClientCA configures the accepted client certificates.
	ClientCA ClientCAConfiguration `json:"clientCA,omitzero"`
	// Tokens configures the accepted webhook tokens (KEP-6060).
	Tokens WebhookTokensConfiguration `json:"tokens,omitzero"`
}

// ClientCAConfiguration configures the accepted client certificates. A CA in the file
// must have signed the certificate, and the certificate must have one of the common names
// or organizations.
type ClientCAConfiguration struct {
	// File is the path of a PEM file with the CAs. Tollgate reads it again when it
	// changes. If empty, Tollgate neither requests nor accepts client certificates.
	File string `json:"file,omitempty"`
	// CommonNames lists the accepted common names. Patterns are not supported.
	CommonNames []string `json:"commonNames,omitempty"`
	// Organizations lists the accepted organizations. Patterns are not supported.
	Organizations []string `json:"organizations,omitempty"`
}

// WebhookTokensConfiguration configures the accepted webhook tokens, which the API server
// issues for the webhook configurations of Tollgate.
type WebhookTokensConfiguration struct {
	// Enabled decides whether tokens are accepted. Defaults to true.
	Enabled bool `json:"enabled"`
	// Issuer is the issuer of the tokens. If empty, it is the issuer that the API server
	// publishes.
	Issuer string `json:"issuer,omitempty"`
	// Audience is the audience of the tokens, a URL https://host:port without a path. If
	// empty, it is webhook.url, or else the URL of the Service on port 443.
	Audience string `json:"audience,omitempty"`
}

// CertificatesMode is the source of the serving certificate.
type CertificatesMode string

// The certificate modes.
const (
	// CertificatesSecret stores a CA and a serving certificate in a Secret that all
	// replicas share. Tollgate issues both, and writes the caBundle into the webhook
	// configurations.
	CertificatesSecret CertificatesMode = "Secret"
	// CertificatesFiles reads tls.crt and tls.key from a directory. The program that
	// issues them writes the caBundle.
	CertificatesFiles CertificatesMode = "Files"
)

// CertificatesConfiguration configures the source of the serving certificate.
type CertificatesConfiguration struct {
	// Mode is Secret or Files. Defaults to Secret.
	Mode CertificatesMode `json:"mode,omitempty"`
	// SecretName is the name of the Secret in mode Secret. Defaults to
	// tollgate-serving-certificate.
	SecretName string `json:"secretName,omitempty"`
	// Directory is the directory with tls.crt and tls.key in mode Files. It is required
	// there.
	Directory string `json:"directory,omitempty"`
	// ServiceName is the name of the Service that the API server calls. The certificate
	// of mode Secret is valid for this name. Defaults to tollgate.
	ServiceName string `json:"serviceName,omitempty"`
	// CADuration is the lifetime of the CA in mode Secret. Defaults to 8760h; the minimum
	// is an hour, and three times ServingDuration.
	CADuration metav1.Duration `json:"caDuration,omitzero"`
	// ServingDuration is the lifetime of a serving certificate in mode Secret. Tollgate
	// renews the certificate after two thirds of this time. Defaults to 720h.
	ServingDuration metav1.Duration `json:"servingDuration,omitzero"`
}

// AdmissionConfiguration configures the built-in rules.
type AdmissionConfiguration struct {
	// MaxTimeAddedSkew is the maximum time by which the timeAdded of a node taint may be
	// in the future. Defaults to 1m.
	MaxTimeAddedSkew metav1.Duration `json:"maxTimeAddedSkew,omitzero"`
	// DefaultNotReadyTolerationSeconds is the value of the API server's flag of the same
	// name. Tollgate does not judge the toleration that the API server adds with this
	// value. Defaults to 300.
	DefaultNotReadyTolerationSeconds int64 `json:"defaultNotReadyTolerationSeconds"`
	// DefaultUnreachableTolerationSeconds is the value of the API server's flag of the
	// same name. Tollgate does not judge the toleration that the API server adds with
	// this value. Defaults to 300.
	DefaultUnreachableTolerationSeconds int64 `json:"defaultUnreachableTolerationSeconds"`
	// ExtendedResourceToleration is true if the API server runs the admission plugin of
	// that name. Tollgate then does not judge the tolerations that the plugin adds.
	ExtendedResourceToleration bool `json:"extendedResourceToleration,omitempty"`
	// PodTolerationRestriction is true if the API server runs the admission plugin of
	// that name. Tollgate then does not judge the toleration of memory pressure that the
	// plugin adds. It judges other tolerations of the plugin as tolerations of the user:
	// any editor of a namespace can write its annotations, and Tollgate does not read the
	// configuration of the plugin.
	PodTolerationRestriction bool `json:"podTolerationRestriction,omitempty"`
	// Schedulers lists the users that bind pods to nodes and obey taints. Tollgate does
	// not judge their bindings. If empty, it is system:kube-scheduler; a list of other
	// schedulers must include it if it runs.
	Schedulers []string `json:"schedulers,omitempty"`
	// WorkloadControllers lists users that create pods from judged templates, in addition
	// to the controllers of Kubernetes. Their pods may have only the tolerations of the
	// live owner of the pod.
	WorkloadControllers []string `json:"workloadControllers,omitempty"`
}

// AuditConfiguration configures the search for existing pods that a TolerationPolicy, or
// the guard of a PlacementPolicy, would refuse today.
type AuditConfiguration struct {
	// OpenReports also writes these pods as Reports of openreports.io/v1alpha1, one
	// Report per namespace. It needs permissions that are not granted by default.
	// Defaults to false.
	OpenReports bool `json:"openReports,omitempty"`
}

// EvictionMode decides how Tollgate works together with the eviction controllers of
// Kubernetes.
type EvictionMode string

// The eviction modes.
const (
	// EvictionReplace evicts in place of the controllers of Kubernetes, which must be
	// disabled.
	EvictionReplace EvictionMode = "Replace"
	// EvictionWindow evicts before the controllers of Kubernetes, which must be enabled.
	// Tolerations that Tollgate adds to pods and claims delay these controllers.
	EvictionWindow EvictionMode = "Window"
	// EvictionObserve evicts no pod. Tollgate predicts the evictions by the controllers
	// of Kubernetes.
	EvictionObserve EvictionMode = "Observe"
)

// EvictionConfiguration configures evictions.
type EvictionConfiguration struct {
	// Mode is Replace, Window or Observe. Defaults to Replace.
	Mode EvictionMode `json:"mode,omitempty"`
	// Workers is the number of concurrent evictions. Defaults to 64.
	Workers int `json:"workers,omitempty"`
	// ComparisonOperators enables the toleration operators Lt and Gt. It must have the
	// value of the feature gate TaintTolerationComparisonOperators in the cluster.
	// Defaults to false.
	ComparisonOperators bool `json:"comparisonOperators,omitempty"`
	// MaxHold is the maximum time for which a timeAdded in the future delays an eviction,
	// beginning when Tollgate first saw the taint. Defaults to 0, which means no maximum.
	MaxHold metav1.Duration `json:"maxHold,omitzero"`
}

// LeaderElectionConfiguration configures the election of the replica that evicts and
// writes.
type LeaderElectionConfiguration struct {
	// Enabled makes a replica wait for the lease before it evicts or writes. It must be
	// true if several replicas run. Defaults to true.
	Enabled bool `json:"enabled"`
	// LeaseDuration is the time for which other replicas wait if the leader does not
	// renew the lease. Defaults to 15s; the minimum is RenewDeadline plus a second.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitzero"`
	// RenewDeadline is the time for which the leader tries to renew the lease before it
	// stops leading. Defaults to 10s.
	RenewDeadline metav1.Duration `json:"renewDeadline,omitzero"`
	// RetryPeriod is the time between two attempts to get or renew the lease. Defaults to
	// 2s.
	RetryPeriod metav1.Duration `json:"retryPeriod,omitzero"`
}

// ClientConnectionConfiguration limits the requests to the API server.
type ClientConnectionConfiguration struct {
	// QPS is the number of requests per second in the long term. Defaults to 400.
	QPS float32 `json:"qps,omitempty"`
	// Burst is the maximum number of requests at once. Defaults to 800.
	Burst int `json:"burst,omitempty"`
	// WatchSilence is the time without an event or bookmark after which Tollgate restarts
	// a watch. An API server sends about one bookmark per minute, so a shorter time
	// restarts quiet watches again and again. Defaults to 150s.
	WatchSilence metav1.Duration `json:"watchSilence,omitzero"`
}

// MetricsAuthorization is the access control of the metrics.
type MetricsAuthorization string

// The access controls of the metrics.
const (
	// MetricsAuto is None on a loopback address, and RBAC on other addresses.
	MetricsAuto MetricsAuthorization = "Auto"
	// MetricsRBAC serves HTTPS, and requires a bearer token of a user with the RBAC
	// permission to get the path /tollgate/metrics. A process with the component webhook
	// uses the certificate of the webhooks.
	MetricsRBAC MetricsAuthorization = "RBAC"
	// MetricsNone serves plain HTTP without access control.
	MetricsNone MetricsAuthorization = "None"
)

// MetricsConfiguration configures the endpoint /metrics.
type MetricsConfiguration struct {
	// BindAddress is host:port of the endpoint. The value "0" disables it. Defaults to
	// 127.0.0.1:8080.
	BindAddress string `json:"bindAddress,omitempty"`
	// Authorization is Auto, RBAC or None. Defaults to Auto.
	Authorization MetricsAuthorization `json:"authorization,omitempty"`
	// CertificateDirectory is the directory with tls.crt and tls.key for HTTPS in a
	// process without the component webhook. Another program renews them.
	CertificateDirectory string `json:"certificateDirectory,omitempty"`
}

// Asked reports whether requests for metrics need a token.
func (c *MetricsConfiguration) Asked() bool {
	if c.Authorization != MetricsAuto {
		return c.Authorization == MetricsRBAC
	}
	host, _, err := net.SplitHostPort(c.BindAddress)
	if err != nil {
		return true
	}
	return host != "localhost" && !net.ParseIP(host).IsLoopback()
}

// TracingConfiguration configures OpenTelemetry traces. If tracing is configured in the
// API server, its traces continue in Tollgate.
type TracingConfiguration struct {
	// Enabled sends a span for each traced review and each traced attempt to evict a pod.
	// Defaults to false.
	Enabled bool `json:"enabled,omitempty"`
	// Endpoint is host:port of the collector. Tollgate sends OTLP over gRPC without TLS.
	// Defaults to localhost:4317.
	Endpoint string `json:"endpoint,omitempty"`
	// SamplingRatePerMillion is the number of traced attempts per million attempts to evict
	// a pod, and the number of traced reviews per million reviews for which the API server
	// has not decided. A decision of the API server takes precedence. Defaults to 0; the
	// maximum is 1000000.
	SamplingRatePerMillion int32 `json:"samplingRatePerMillion,omitempty"`
}

// EndpointConfiguration configures an HTTP endpoint without TLS.
type EndpointConfiguration struct {
	// BindAddress is host:port of the endpoint. The value "0" disables it. Defaults to
	// 127.0.0.1:8081.
	BindAddress string `json:"bindAddress,omitempty"`
}
