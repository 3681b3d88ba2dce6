package v1alpha1

import (
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind name the configuration in its file.
const (
	APIVersion = "config.tollgate.dev/v1alpha1"
	Kind       = "TollgateConfiguration"
)

// TollgateConfiguration configures tollgate serve. Every field has a default.
type TollgateConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace is the namespace of Tollgate's Lease and Secret.
	Namespace string `json:"namespace,omitempty"`
	// Webhook configures the admission endpoints.
	Webhook WebhookConfiguration `json:"webhook,omitzero"`
	// Certificates configures the source of the serving certificate.
	Certificates CertificatesConfiguration `json:"certificates,omitzero"`
	// Admission configures the built-in rules.
	Admission AdmissionConfiguration `json:"admission,omitzero"`
	// Audit configures the search for pods that a policy would refuse today.
	Audit AuditConfiguration `json:"audit,omitzero"`
	// Eviction configures evictions.
	Eviction EvictionConfiguration `json:"eviction,omitzero"`
	// LeaderElection configures which replica evicts.
	LeaderElection LeaderElectionConfiguration `json:"leaderElection,omitzero"`
	// ClientConnection limits requests to the API server.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection,omitzero"`
	// Metrics configures the endpoint of metrics.
	Metrics MetricsConfiguration `json:"metrics,omitzero"`
	// Tracing configures traces of OpenTelemetry.
	Tracing TracingConfiguration `json:"tracing,omitzero"`
	// Health configures the endpoint of /healthz and /readyz.
	Health EndpointConfiguration `json:"health,omitzero"`
	// FeatureGates enables and disables features by name.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// WebhookConfiguration configures the admission endpoints.
type WebhookConfiguration struct {
	// BindAddress is host:port of the HTTPS listener.
	BindAddress string `json:"bindAddress,omitempty"`
	// URL registers the webhooks by URL instead of by Service, for a Tollgate outside of
	// its cluster: https://host:port as the API server reaches it.
	URL string `json:"url,omitempty"`
	// Registration is Manual or Managed.
	Registration RegistrationMode `json:"registration,omitempty"`
	// FailurePolicy is what Managed registers for everything that is judged: Fail refuses
	// requests while no replica answers, Ignore lets them pass.
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// ExcludedNamespaces are namespaces in which nothing is judged with Managed, besides
	// kube-system and Tollgate's own.
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// Budget bounds the evaluation of one review.
	Budget metav1.Duration `json:"budget,omitzero"`
	// DrainPeriod is how long a terminating replica still answers reviews while it is not
	// ready: the time until API servers stop sending reviews to it. It must be shorter
	// than the grace period of its pod.
	DrainPeriod metav1.Duration `json:"drainPeriod,omitzero"`
	// MaxInFlightBytes caps the total size of the bodies of concurrent reviews.
	MaxInFlightBytes int64 `json:"maxInFlightBytes,omitempty"`
	// Authentication configures the authentication of callers.
	Authentication AuthenticationConfiguration `json:"authentication,omitzero"`
}

// RegistrationMode says which program writes the webhooks by which the API server calls Tollgate.
type RegistrationMode string

// The modes of registration.
const (
	// RegistrationManual leaves the webhooks as they were installed. Tollgate writes their
	// caBundle and URL.
	RegistrationManual RegistrationMode = "Manual"
	// RegistrationManaged has the leader write the webhooks that the policies in force need
	// into the two installed configurations, which it never creates. It needs
	// certificates.mode Secret.
	RegistrationManaged RegistrationMode = "Managed"
)

// FailurePolicy is the failurePolicy of webhooks.
type FailurePolicy string

// The failure policies.
const (
	FailurePolicyFail   FailurePolicy = "Fail"
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// AuthenticationMode is the mode of the authentication of callers.
type AuthenticationMode string

// The modes of authentication.
const (
	// AuthenticationOff ignores credentials.
	AuthenticationOff AuthenticationMode = "Off"
	// AuthenticationOptional answers all callers, and counts those that Required would
	// refuse.
	AuthenticationOptional AuthenticationMode = "Optional"
	// AuthenticationRequired refuses callers without accepted credentials.
	AuthenticationRequired AuthenticationMode = "Required"
)

// AuthenticationConfiguration configures the accepted credentials; one of them suffices.
type AuthenticationConfiguration struct {
	// Mode is Off, Optional or Required.
	Mode AuthenticationMode `json:"mode,omitempty"`
	// ClientCA configures the accepted client certificates.
	ClientCA ClientCAConfiguration `json:"clientCA,omitzero"`
	// Tokens configures the accepted webhook tokens (KEP-6060).
	Tokens WebhookTokensConfiguration `json:"tokens,omitzero"`
}

// ClientCAConfiguration configures the accepted client certificates: those of a CA in the
// file, with one of the names or organizations.
type ClientCAConfiguration struct {
	// File holds the CAs, as PEM. It is read again when it changes. Without it, client
	// certificates are neither requested nor accepted.
	File string `json:"file,omitempty"`
	// CommonNames are accepted common names, compared whole.
	CommonNames []string `json:"commonNames,omitempty"`
	// Organizations are accepted organizations, compared whole.
	Organizations []string `json:"organizations,omitempty"`
}

// WebhookTokensConfiguration configures the accepted webhook tokens: those that the API
// server issued for Tollgate's webhook configurations.
type WebhookTokensConfiguration struct {
	// Enabled accepts tokens.
	Enabled bool `json:"enabled"`
	// Issuer is the issuer of tokens; if empty, the one that the API server publishes.
	Issuer string `json:"issuer,omitempty"`
	// Audience is the audience of tokens, a URL without a path: https://host:port. If
	// empty, it is webhook.url or else the URL of the Service, on port 443.
	Audience string `json:"audience,omitempty"`
}

// CertificatesMode is the source of the serving certificate.
type CertificatesMode string

// The certificate modes.
const (
	// CertificatesSecret stores a CA and a serving certificate of Tollgate in a Secret
	// that all replicas share, and writes the caBundle into the webhook configurations.
	CertificatesSecret CertificatesMode = "Secret"
	// CertificatesFiles reads tls.crt and tls.key from a directory and leaves the caBundle
	// to the program that issues them.
	CertificatesFiles CertificatesMode = "Files"
)

// CertificatesConfiguration configures the source of the serving certificate.
type CertificatesConfiguration struct {
	// Mode is Secret or Files.
	Mode CertificatesMode `json:"mode,omitempty"`
	// SecretName names the Secret of mode Secret.
	SecretName string `json:"secretName,omitempty"`
	// Directory holds tls.crt and tls.key in mode Files.
	Directory string `json:"directory,omitempty"`
	// ServiceName names the Service that the API server calls; the certificate is valid
	// for it.
	ServiceName string `json:"serviceName,omitempty"`
	// CADuration is the lifetime of the CA.
	CADuration metav1.Duration `json:"caDuration,omitzero"`
	// ServingDuration is the lifetime of a serving certificate. It is renewed after two
	// thirds of that.
	ServingDuration metav1.Duration `json:"servingDuration,omitzero"`
}

// AdmissionConfiguration configures the built-in rules.
type AdmissionConfiguration struct {
	// MaxTimeAddedSkew is how far the timeAdded of a node taint may be in the future.
	MaxTimeAddedSkew metav1.Duration `json:"maxTimeAddedSkew,omitzero"`
	// DefaultNotReadyTolerationSeconds is the API server's flag of the same name: users
	// did not choose the toleration that it adds.
	DefaultNotReadyTolerationSeconds int64 `json:"defaultNotReadyTolerationSeconds"`
	// DefaultUnreachableTolerationSeconds is the API server's flag of the same name.
	DefaultUnreachableTolerationSeconds int64 `json:"defaultUnreachableTolerationSeconds"`
	// ExtendedResourceToleration is true if the API server runs the admission plugin of
	// that name: users did not choose the tolerations that it adds.
	ExtendedResourceToleration bool `json:"extendedResourceToleration,omitempty"`
	// PodTolerationRestriction is true if the API server runs the admission plugin of that
	// name: users did not choose the toleration of memory pressure that it adds.
	// Tolerations from annotations of a namespace count as chosen, because an editor of
	// the namespace wrote them, and so do the defaults of the plugin's configuration,
	// which Tollgate does not know.
	PodTolerationRestriction bool `json:"podTolerationRestriction,omitempty"`
	// Schedulers are the users that assign pods to nodes with regard to taints, and so
	// need no further right. If empty, it is system:kube-scheduler, which must be listed
	// beside others if it runs.
	Schedulers []string `json:"schedulers,omitempty"`
	// WorkloadControllers are users that create pods from templates that admission has
	// checked, beside the controllers of Kubernetes. They may only pass on the tolerations
	// of the live owner of a pod.
	WorkloadControllers []string `json:"workloadControllers,omitempty"`
}

// AuditConfiguration configures the search for pods that a TolerationPolicy, or the guard of
// a PlacementPolicy, would refuse today.
type AuditConfiguration struct {
	// OpenReports writes the pods that are found as Reports of openreports.io/v1alpha1 too,
	// one for each namespace. It needs rights that are not granted by default.
	OpenReports bool `json:"openReports,omitempty"`
}

// EvictionMode is the relation of Tollgate to the eviction controllers of Kubernetes.
type EvictionMode string

// The modes.
const (
	// EvictionReplace evicts instead of the controllers of Kubernetes, which are disabled.
	EvictionReplace EvictionMode = "Replace"
	// EvictionWindow evicts before the controllers of Kubernetes, which are enabled:
	// injected tolerations of pods and claims delay those.
	EvictionWindow EvictionMode = "Window"
	// EvictionObserve evicts no pod: it predicts the evictions by the controllers of
	// Kubernetes.
	EvictionObserve EvictionMode = "Observe"
)

// EvictionConfiguration configures evictions.
type EvictionConfiguration struct {
	// Mode is Replace, Window or Observe.
	Mode EvictionMode `json:"mode,omitempty"`
	// Workers is the number of concurrent evictions: as many of pods that use
	// ResourceClaims, and as many of others.
	Workers int `json:"workers,omitempty"`
	// ComparisonOperators enables the toleration operators Lt and Gt. It must equal the
	// feature gate TaintTolerationComparisonOperators of the cluster.
	ComparisonOperators bool `json:"comparisonOperators,omitempty"`
	// MaxHold caps the delay of an eviction by a timeAdded in the future, counted from
	// when the taint was first seen. Zero means no limit.
	MaxHold metav1.Duration `json:"maxHold,omitzero"`
}

// LeaderElectionConfiguration configures which replica evicts.
type LeaderElectionConfiguration struct {
	// Enabled is true where more than one replica may run.
	Enabled bool `json:"enabled"`
	// LeaseDuration is how long other replicas wait for a leader that does not renew.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitzero"`
	// RenewDeadline is how long a leader tries to renew the lease before it stops leading.
	RenewDeadline metav1.Duration `json:"renewDeadline,omitzero"`
	// RetryPeriod is the time between two attempts.
	RetryPeriod metav1.Duration `json:"retryPeriod,omitzero"`
}

// ClientConnectionConfiguration limits requests to the API server.
type ClientConnectionConfiguration struct {
	// QPS is the sustained number of requests per second.
	QPS float32 `json:"qps,omitempty"`
	// Burst is the maximum number of requests at once.
	Burst int `json:"burst,omitempty"`
	// WatchSilence is how long a watch may send nothing before it is restarted. An API
	// server sends about one bookmark a minute, so shorter values restart watches without
	// events again and again.
	WatchSilence metav1.Duration `json:"watchSilence,omitzero"`
}

// MetricsAuthorization is the access control of metrics.
type MetricsAuthorization string

// The ways.
const (
	// MetricsAuto is None on a loopback address, and RBAC on others.
	MetricsAuto MetricsAuthorization = "Auto"
	// MetricsRBAC serves HTTPS and requires a bearer token of a user that RBAC lets get
	// the path /tollgate/metrics. A process with the component webhook serves the
	// certificate of the webhooks.
	MetricsRBAC MetricsAuthorization = "RBAC"
	// MetricsNone serves plain HTTP without access control.
	MetricsNone MetricsAuthorization = "None"
)

// MetricsConfiguration configures the endpoint of metrics.
type MetricsConfiguration struct {
	// BindAddress is host:port, or "0" to serve nothing.
	BindAddress string `json:"bindAddress,omitempty"`
	// Authorization is Auto, RBAC or None.
	Authorization MetricsAuthorization `json:"authorization,omitempty"`
	// CertificateDirectory holds tls.crt and tls.key, which another program renews, with
	// which a process without the component webhook serves HTTPS.
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
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// TracingConfiguration configures traces of OpenTelemetry. The API server continues its own
// traces into webhooks where its tracing is configured.
type TracingConfiguration struct {
	// Enabled sends a span for each traced review.
	Enabled bool `json:"enabled,omitempty"`
	// Endpoint is host:port of the collector, which is sent OTLP over gRPC without TLS.
	Endpoint string `json:"endpoint,omitempty"`
	// SamplingRatePerMillion is how many of a million reviews are traced that come without a
	// decision of the API server. Where that has decided, its decision holds.
	SamplingRatePerMillion int32 `json:"samplingRatePerMillion,omitempty"`
}

// EndpointConfiguration configures a plain HTTP endpoint.
type EndpointConfiguration struct {
	// BindAddress is host:port, or "0" to serve nothing.
	BindAddress string `json:"bindAddress,omitempty"`
}
