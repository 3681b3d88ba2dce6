package v1alpha1

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the errors of a configuration with defaults.
func (c *TollgateConfiguration) Validate() field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, name(c.Namespace, field.NewPath("namespace"))...)
	errs = append(errs, c.Webhook.validate(field.NewPath("webhook"))...)
	errs = append(errs, c.Certificates.validate(field.NewPath("certificates"))...)
	if c.Webhook.Registration == RegistrationManaged && c.Certificates.Mode == CertificatesFiles {
		errs = append(errs, field.Invalid(field.NewPath("webhook", "registration"), c.Webhook.Registration,
			"needs certificates.mode Secret: with Files another program writes the caBundle, and would come too late for a new webhook"))
	}
	errs = append(errs, c.Admission.validate(field.NewPath("admission"))...)
	errs = append(errs, c.Eviction.validate(field.NewPath("eviction"))...)
	errs = append(errs, c.LeaderElection.validate(field.NewPath("leaderElection"))...)
	connection := field.NewPath("clientConnection")
	if c.ClientConnection.QPS <= 0 {
		errs = append(errs, field.Invalid(connection.Child("qps"), c.ClientConnection.QPS, "must be more than 0"))
	}
	errs = append(errs, atLeast(int64(c.ClientConnection.Burst), 1, connection.Child("burst"))...)
	errs = append(errs, positive(c.ClientConnection.WatchSilence.Duration, connection.Child("watchSilence"))...)
	errs = append(errs, c.Metrics.validate(field.NewPath("metrics"))...)
	errs = append(errs, c.Tracing.validate(field.NewPath("tracing"))...)
	errs = append(errs, address(c.Health.BindAddress, true, field.NewPath("health", "bindAddress"))...)
	return errs
}

func (c *MetricsConfiguration) validate(path *field.Path) field.ErrorList {
	errs := address(c.BindAddress, true, path.Child("bindAddress"))
	switch c.Authorization {
	case MetricsAuto, MetricsRBAC, MetricsNone:
	default:
		errs = append(errs, field.NotSupported(path.Child("authorization"), c.Authorization, []MetricsAuthorization{MetricsAuto, MetricsRBAC, MetricsNone}))
	}
	return errs
}

func (c *TracingConfiguration) validate(path *field.Path) field.ErrorList {
	errs := address(c.Endpoint, false, path.Child("endpoint"))
	if c.SamplingRatePerMillion < 0 || c.SamplingRatePerMillion > 1_000_000 {
		errs = append(errs, field.Invalid(path.Child("samplingRatePerMillion"), c.SamplingRatePerMillion, "must be from 0 to 1000000"))
	}
	return errs
}

func (c *WebhookConfiguration) validate(path *field.Path) field.ErrorList {
	errs := address(c.BindAddress, false, path.Child("bindAddress"))
	errs = append(errs, webhookURL(c.URL, path.Child("url"))...)
	errs = append(errs, positive(c.Budget.Duration, path.Child("budget"))...)
	errs = append(errs, notNegative(c.DrainPeriod.Duration, path.Child("drainPeriod"))...)
	// A smaller limit would refuse a review of the maximum size.
	const largest = 16 << 20
	errs = append(errs, atLeast(c.MaxInFlightBytes, largest, path.Child("maxInFlightBytes"))...)
	errs = append(errs, c.validateRegistration(path)...)
	return append(errs, c.Authentication.validate(path.Child("authentication"))...)
}

func (c *WebhookConfiguration) validateRegistration(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch c.Registration {
	case RegistrationManual, RegistrationManaged:
	default:
		errs = append(errs, field.NotSupported(path.Child("registration"), c.Registration, []RegistrationMode{RegistrationManaged, RegistrationManual}))
	}
	switch c.FailurePolicy {
	case FailurePolicyFail, FailurePolicyIgnore:
	default:
		errs = append(errs, field.NotSupported(path.Child("failurePolicy"), c.FailurePolicy, []FailurePolicy{FailurePolicyFail, FailurePolicyIgnore}))
	}
	for i, namespace := range c.ExcludedNamespaces {
		errs = append(errs, name(namespace, path.Child("excludedNamespaces").Index(i))...)
	}
	return errs
}

func (c *AuthenticationConfiguration) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch c.Mode {
	case AuthenticationOff, AuthenticationOptional:
	case AuthenticationRequired:
		if c.ClientCA.File == "" && !c.Tokens.expected() {
			errs = append(errs, field.Invalid(path.Child("mode"), c.Mode, "needs clientCA.file, "+
				"or tokens.enabled with tokens.audience or tokens.issuer: no API server shows tokens by itself yet, and would be locked out"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("mode"), c.Mode,
			[]AuthenticationMode{AuthenticationOff, AuthenticationOptional, AuthenticationRequired}))
	}
	errs = append(errs, c.ClientCA.validate(path.Child("clientCA"))...)
	if issuer := c.Tokens.Issuer; issuer != strings.TrimSpace(issuer) {
		errs = append(errs, field.Invalid(path.Child("tokens", "issuer"), issuer, "must have no spaces around it"))
	}
	return append(errs, webhookURL(c.Tokens.Audience, path.Child("tokens", "audience"))...)
}

// expected reports whether the API server is configured to send tokens. Enabled, the
// default, does not suffice: API servers of Kubernetes 1.37 issue tokens but send none.
func (c *WebhookTokensConfiguration) expected() bool {
	return c.Enabled && (c.Audience != "" || c.Issuer != "")
}

// validate requires a name beside the CA: most CAs of a cluster also sign for others,
// every kubelet for example.
func (c *ClientCAConfiguration) validate(path *field.Path) field.ErrorList {
	errs := subjects(c.CommonNames, path.Child("commonNames"))
	errs = append(errs, subjects(c.Organizations, path.Child("organizations"))...)
	switch named := len(c.CommonNames)+len(c.Organizations) > 0; {
	case c.File != "" && !named:
		errs = append(errs, field.Required(path.Child("commonNames"), "clientCA.file needs commonNames or organizations to accept"))
	case c.File == "" && named:
		errs = append(errs, field.Required(path.Child("file"), "commonNames and organizations need the authorities that certify them"))
	}
	return errs
}

// subjects validates names in certificates. The names are compared whole, so a pattern
// would match none.
func subjects(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if name == "" || strings.Contains(name, "*") {
			errs = append(errs, field.Invalid(path.Index(i), name, "must be a whole name; there are no patterns"))
		}
	}
	return errs
}

func (c *EvictionConfiguration) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch c.Mode {
	case EvictionReplace, EvictionWindow, EvictionObserve:
	default:
		errs = append(errs, field.NotSupported(path.Child("mode"), c.Mode, []EvictionMode{EvictionReplace, EvictionWindow, EvictionObserve}))
	}
	errs = append(errs, atLeast(int64(c.Workers), 1, path.Child("workers"))...)
	return append(errs, notNegative(c.MaxHold.Duration, path.Child("maxHold"))...)
}

func (c *CertificatesConfiguration) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch c.Mode {
	case CertificatesSecret:
		errs = append(errs, name(c.SecretName, path.Child("secretName"))...)
		errs = append(errs, name(c.ServiceName, path.Child("serviceName"))...)
		errs = append(errs, c.validateDurations(path)...)
	case CertificatesFiles:
		if c.Directory == "" {
			errs = append(errs, field.Required(path.Child("directory"), "mode Files reads tls.crt and tls.key from it"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("mode"), c.Mode, []CertificatesMode{CertificatesSecret, CertificatesFiles}))
	}
	return errs
}

// validateDurations checks the requirements of package certs: Tollgate must be able to
// renew a serving certificate in time, and the CA must outlive its certificates and the
// delay of a roll-over.
func (c *CertificatesConfiguration) validateDurations(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const shortest, shortestCA = 10 * time.Second, time.Hour
	if c.ServingDuration.Duration < shortest {
		errs = append(errs, field.Invalid(path.Child("servingDuration"), c.ServingDuration.Duration.String(), "must be at least "+shortest.String()))
	}
	if c.CADuration.Duration < max(shortestCA, 3*c.ServingDuration.Duration) {
		errs = append(errs, field.Invalid(path.Child("caDuration"), c.CADuration.Duration.String(), "must be at least three times servingDuration, and an hour"))
	}
	return errs
}

func (c *AdmissionConfiguration) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, notNegative(c.MaxTimeAddedSkew.Duration, path.Child("maxTimeAddedSkew"))...)
	errs = append(errs, atLeast(c.DefaultNotReadyTolerationSeconds, 0, path.Child("defaultNotReadyTolerationSeconds"))...)
	errs = append(errs, atLeast(c.DefaultUnreachableTolerationSeconds, 0, path.Child("defaultUnreachableTolerationSeconds"))...)
	errs = append(errs, users(c.Schedulers, path.Child("schedulers"))...)
	return append(errs, users(c.WorkloadControllers, path.Child("workloadControllers"))...)
}

// users validates names of users. The names are compared whole, so a pattern would match
// none.
func users(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]struct{}{}
	for i, name := range names {
		switch _, twice := seen[name]; {
		case name == "" || name != strings.TrimSpace(name):
			errs = append(errs, field.Invalid(path.Index(i), name, "must be the name of a user, without spaces around it"))
		case strings.Contains(name, "*"):
			errs = append(errs, field.Invalid(path.Index(i), name, "must be the whole name of a user; there are no patterns"))
		case twice:
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		seen[name] = struct{}{}
	}
	return errs
}

// validate checks the requirements of client-go's leader election.
func (c *LeaderElectionConfiguration) validate(path *field.Path) field.ErrorList {
	errs := positive(c.RetryPeriod.Duration, path.Child("retryPeriod"))
	// After a failed renewal, an eviction request may still run for the difference; with
	// less than a second none could finish.
	if c.LeaseDuration.Duration-c.RenewDeadline.Duration < time.Second {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), c.LeaseDuration.Duration.String(), "must be longer than renewDeadline by at least a second"))
	}
	const jitter = 1.2
	if float64(c.RenewDeadline.Duration) <= jitter*float64(c.RetryPeriod.Duration) {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), c.RenewDeadline.Duration.String(), "must be longer than 1.2 times retryPeriod"))
	}
	return errs
}

func name(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Label(value) {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}

func address(value string, mayBeOff bool, path *field.Path) field.ErrorList {
	if mayBeOff && value == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be host:port")}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return field.ErrorList{field.Invalid(path, value, "the port must be a number from 1 to 65535")}
	}
	return nil
}

func webhookURL(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || !isHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" {
		return field.ErrorList{field.Invalid(path, value, "must be https://host:port and nothing more")}
	}
	return nil
}

// isHost reports whether a certificate can be valid for a host.
func isHost(host string) bool {
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

func positive(value time.Duration, path *field.Path) field.ErrorList {
	if value <= 0 {
		return field.ErrorList{field.Invalid(path, value.String(), "must be longer than 0")}
	}
	return nil
}

func notNegative(value time.Duration, path *field.Path) field.ErrorList {
	if value < 0 {
		return field.ErrorList{field.Invalid(path, value.String(), "must not be negative")}
	}
	return nil
}

func atLeast(value, least int64, path *field.Path) field.ErrorList {
	if value < least {
		return field.ErrorList{field.Invalid(path, value, "must be at least "+strconv.FormatInt(least, 10))}
	}
	return nil
}
