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

	// Namespace is where Tollgate runs: its Lease and its Secret are there.
	Namespace string `json:"namespace,omitempty"`
	// Webhook configures the admission endpoints.
	Webhook WebhookConfiguration `json:"webhook,omitzero"`
	// Certificates says where the serving certificate comes from.
	Certificates CertificatesConfiguration `json:"certificates,omitzero"`
	// Admission configures the built-in rules.
	Admission AdmissionConfiguration `json:"admission,omitzero"`
	// Eviction configures how evictions are carried out.
	Eviction EvictionConfiguration `json:"eviction,omitzero"`
	// LeaderElection configures which replica evicts.
	LeaderElection LeaderElectionConfiguration `json:"leaderElection,omitzero"`
	// ClientConnection bounds what Tollgate asks of the API server.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection,omitzero"`
	// Metrics says where metrics are served.
	Metrics MetricsConfiguration `json:"metrics,omitzero"`
	// Health says where /healthz and /readyz are served.
	Health EndpointConfiguration `json:"health,omitzero"`
	// FeatureGates switch capabilities on and off by name.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// WebhookConfiguration configures the admission endpoints.
type WebhookConfiguration struct {
	// BindAddress is host:port of the HTTPS listener.
	BindAddress string `json:"bindAddress,omitempty"`
	// URL registers the webhooks by URL instead of by Service, for a Tollgate
	// beside its cluster: https://host:port as the API server reaches it.
	URL string `json:"url,omitempty"`
	// Budget is how long the judgement of one review may take.
	Budget metav1.Duration `json:"budget,omitzero"`
	// DrainPeriod is for how long a replica that was told to end goes on answering
	// reviews while it already says that it is not ready: as long as it takes until
	// nobody sends it new ones. It must be shorter than the grace period of its pod.
	DrainPeriod metav1.Duration `json:"drainPeriod,omitzero"`
	// MaxInFlightBytes bounds the bodies of the reviews judged at one time.
	MaxInFlightBytes int64 `json:"maxInFlightBytes,omitempty"`
	// Authentication says what callers have to show.
	Authentication AuthenticationConfiguration `json:"authentication,omitzero"`
}

// AuthenticationMode says whether callers have to show who they are.
type AuthenticationMode string

// The modes of authentication.
const (
	// AuthenticationOff looks at nothing that callers show.
	AuthenticationOff AuthenticationMode = "Off"
	// AuthenticationOptional answers everybody, and counts who would be refused.
	AuthenticationOptional AuthenticationMode = "Optional"
	// AuthenticationRequired answers only who shows who it is.
	AuthenticationRequired AuthenticationMode = "Required"
)

// AuthenticationConfiguration says what callers have to show: one of what is accepted.
type AuthenticationConfiguration struct {
	// Mode is Off, Optional or Required.
	Mode AuthenticationMode `json:"mode,omitempty"`
	// ClientCA says which client certificates are accepted.
	ClientCA ClientCAConfiguration `json:"clientCA,omitzero"`
	// Tokens says which webhook tokens (KEP-6060) are accepted.
	Tokens WebhookTokensConfiguration `json:"tokens,omitzero"`
}

// ClientCAConfiguration says which client certificates are accepted: those of an authority
// in the file, with one of the names or organizations.
type ClientCAConfiguration struct {
	// File holds the authorities, as PEM. It is read again when it changes. No client
	// certificate is accepted, or asked for, without.
	File string `json:"file,omitempty"`
	// CommonNames are accepted, compared whole.
	CommonNames []string `json:"commonNames,omitempty"`
	// Organizations are accepted, compared whole.
	Organizations []string `json:"organizations,omitempty"`
}

// WebhookTokensConfiguration says which webhook tokens are accepted: those that the API
// server issued for Tollgate's webhook configurations.
type WebhookTokensConfiguration struct {
	// Enabled accepts tokens.
	Enabled bool `json:"enabled"`
	// Issuer is the issuer of tokens; the one that the API server publishes if it is empty.
	Issuer string `json:"issuer,omitempty"`
	// Audience is the URL that tokens are for without its path: https://host:port. If it is
	// empty, it is webhook.url or else that of the Service, on port 443.
	Audience string `json:"audience,omitempty"`
}

// CertificatesMode says where the serving certificate comes from.
type CertificatesMode string

// The certificate modes.
const (
	// CertificatesSecret keeps a CA and a serving certificate of its own in a
	// Secret that all replicas share, and the caBundle in the webhook
	// configurations.
	CertificatesSecret CertificatesMode = "Secret"
	// CertificatesFiles reads tls.crt and tls.key from a directory and leaves the
	// caBundle to whoever issues them.
	CertificatesFiles CertificatesMode = "Files"
)

// CertificatesConfiguration says where the serving certificate comes from.
type CertificatesConfiguration struct {
	// Mode is Secret or Files.
	Mode CertificatesMode `json:"mode,omitempty"`
	// SecretName names the Secret of mode Secret.
	SecretName string `json:"secretName,omitempty"`
	// Directory holds tls.crt and tls.key in mode Files.
	Directory string `json:"directory,omitempty"`
	// ServiceName names the Service that the API server calls; it stands in the
	// certificate.
	ServiceName string `json:"serviceName,omitempty"`
	// CADuration is how long the CA is valid.
	CADuration metav1.Duration `json:"caDuration,omitzero"`
	// ServingDuration is how long a serving certificate is valid. It is renewed
	// after two thirds of that.
	ServingDuration metav1.Duration `json:"servingDuration,omitzero"`
}

// AdmissionConfiguration configures the built-in rules.
type AdmissionConfiguration struct {
	// MaxTimeAddedSkew is how far ahead of now the timeAdded of a node taint may
	// be.
	MaxTimeAddedSkew metav1.Duration `json:"maxTimeAddedSkew,omitzero"`
	// DefaultNotReadyTolerationSeconds is the flag of the same name of the API
	// server: the toleration that it adds is never a user's choice.
	DefaultNotReadyTolerationSeconds int64 `json:"defaultNotReadyTolerationSeconds"`
	// DefaultUnreachableTolerationSeconds is the flag of the same name of the API
	// server.
	DefaultUnreachableTolerationSeconds int64 `json:"defaultUnreachableTolerationSeconds"`
	// ExtendedResourceToleration says that the API server runs the admission
	// plugin of that name: the tolerations that it adds are never a user's choice.
	ExtendedResourceToleration bool `json:"extendedResourceToleration,omitempty"`
	// PodTolerationRestriction says that the API server runs the admission plugin
	// of that name: the toleration of memory pressure that it adds is never a
	// user's choice. What a namespace's annotations add is judged like one, because
	// whoever may edit the namespace chose it, and so are the defaults of the plugin's
	// configuration, which is not known here.
	PodTolerationRestriction bool `json:"podTolerationRestriction,omitempty"`
	// Schedulers are the users who put pods on nodes by their taints, and so are not
	// asked by which right. None stands for system:kube-scheduler, which has to be named
	// too where others are and it runs.
	Schedulers []string `json:"schedulers,omitempty"`
	// WorkloadControllers are users who make pods from templates that were judged, as
	// the controllers of Kubernetes do, which are known. Only what the live owner of a
	// pod carries is theirs to pass on.
	WorkloadControllers []string `json:"workloadControllers,omitempty"`
}

// EvictionMode says what Tollgate and the controllers of Kubernetes that evict are to
// each other.
type EvictionMode string

// The modes.
const (
	// EvictionReplace evicts in the place of the controllers of Kubernetes, which are
	// off.
	EvictionReplace EvictionMode = "Replace"
	// EvictionWindow evicts before the controllers of Kubernetes do, which are on: pods
	// and claims are given tolerations that hold those off for a while.
	EvictionWindow EvictionMode = "Window"
	// EvictionObserve evicts nobody: what taints would do is foretold, and left to the
	// controllers of Kubernetes.
	EvictionObserve EvictionMode = "Observe"
)

// EvictionConfiguration configures how evictions are carried out.
type EvictionConfiguration struct {
	// Mode is Replace, Window or Observe.
	Mode EvictionMode `json:"mode,omitempty"`
	// Workers is how many evictions are under way at one time: so many of pods that
	// use ResourceClaims, and so many of others.
	Workers int `json:"workers,omitempty"`
	// ComparisonOperators honours the toleration operators Lt and Gt. Set it as
	// the feature gate TaintTolerationComparisonOperators of the cluster is set.
	ComparisonOperators bool `json:"comparisonOperators,omitempty"`
	// MaxHold is the longest that a timeAdded in the future holds an eviction,
	// counted from when the taint was seen. Zero is no bound.
	MaxHold metav1.Duration `json:"maxHold,omitzero"`
}

// LeaderElectionConfiguration configures which replica evicts.
type LeaderElectionConfiguration struct {
	// Enabled is true where more than one replica may run.
	Enabled bool `json:"enabled"`
	// LeaseDuration is how long the others wait for a leader that is silent.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitzero"`
	// RenewDeadline is how long a leader tries to renew before it gives up.
	RenewDeadline metav1.Duration `json:"renewDeadline,omitzero"`
	// RetryPeriod is the time between two tries.
	RetryPeriod metav1.Duration `json:"retryPeriod,omitzero"`
}

// ClientConnectionConfiguration bounds what Tollgate asks of the API server.
type ClientConnectionConfiguration struct {
	// QPS is how many requests a second are sent in the long run.
	QPS float32 `json:"qps,omitempty"`
	// Burst is how many requests may be sent at once.
	Burst int `json:"burst,omitempty"`
	// WatchSilence is for how long a watch may say nothing, not even by a bookmark, of
	// which an API server sends about one a minute, before it is begun anew. Any positive
	// time is accepted, but with less than about a minute watches on which nothing happens
	// are begun anew all the time.
	WatchSilence metav1.Duration `json:"watchSilence,omitzero"`
}

// MetricsAuthorization says who is shown metrics.
type MetricsAuthorization string

// The ways.
const (
	// MetricsAuto is None on a loopback address, and RBAC on others.
	MetricsAuto MetricsAuthorization = "Auto"
	// MetricsRBAC serves HTTPS and shows metrics to whose bearer token the API server knows and
	// whom RBAC lets get the path /tollgate/metrics. A process with the component webhook shows
	// the certificate of the webhooks.
	MetricsRBAC MetricsAuthorization = "RBAC"
	// MetricsNone serves plain HTTP to everyone who can reach it.
	MetricsNone MetricsAuthorization = "None"
)

// MetricsConfiguration says where metrics are served, and to whom.
type MetricsConfiguration struct {
	// BindAddress is host:port, or "0" to serve nothing.
	BindAddress string `json:"bindAddress,omitempty"`
	// Authorization is Auto, RBAC or None.
	Authorization MetricsAuthorization `json:"authorization,omitempty"`
	// CertificateDirectory holds tls.crt and tls.key, kept up to date by others, with which a
	// process without the component webhook serves HTTPS.
	CertificateDirectory string `json:"certificateDirectory,omitempty"`
}

// Asked reports whether who asks for metrics has to show a token.
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

// EndpointConfiguration is where something is served over plain HTTP.
type EndpointConfiguration struct {
	// BindAddress is host:port, or "0" to serve nothing.
	BindAddress string `json:"bindAddress,omitempty"`
}
