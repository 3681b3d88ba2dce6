package v1alpha1

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the errors of a configuration with defaults.
func (c *TollgateConfiguration) Validate() field.ErrorList {
	connection := field.NewPath("clientConnection")
	return slices.Concat(
		name(c.Namespace, field.NewPath("namespace")),
		c.Webhook.validate(field.NewPath("webhook")),
		c.Certificates.validate(field.NewPath("certificates")),
		checkValue(c.Webhook.Registration != RegistrationManaged || c.Certificates.Mode != CertificatesFiles, field.NewPath("webhook", "registration"), c.Webhook.Registration,
			"needs certificates.mode Secret: with Files another program writes the caBundle, and would come too late for a new webhook"),
		c.Admission.validate(field.NewPath("admission")),
		c.Eviction.validate(field.NewPath("eviction")),
		c.LeaderElection.validate(field.NewPath("leaderElection")),
		checkValue(c.ClientConnection.QPS > 0, connection.Child("qps"), c.ClientConnection.QPS, "must be more than 0"),
		atLeast(int64(c.ClientConnection.Burst), 1, connection.Child("burst")),
		positive(c.ClientConnection.WatchSilence.Duration, connection.Child("watchSilence")),
		c.Metrics.validate(field.NewPath("metrics")),
		c.Tracing.validate(field.NewPath("tracing")),
		address(c.Health.BindAddress, true, field.NewPath("health", "bindAddress")))
}

// check returns an error unless a value is right.
func check(right bool, err *field.Error) field.ErrorList {
	if right {
		return nil
	}
	return field.ErrorList{err}
}

// checkValue returns an error with the message unless a value is right.
func checkValue(right bool, path *field.Path, value any, message string) field.ErrorList {
	return check(right, field.Invalid(path, value, message))
}

func oneOf[T ~string](value T, path *field.Path, known ...T) field.ErrorList {
	return check(slices.Contains(known, value), field.NotSupported(path, value, known))
}

func (c *MetricsConfiguration) validate(path *field.Path) field.ErrorList {
	return append(address(c.BindAddress, true, path.Child("bindAddress")),
		oneOf(c.Authorization, path.Child("authorization"), MetricsAuto, MetricsRBAC, MetricsNone)...)
}

func (c *TracingConfiguration) validate(path *field.Path) field.ErrorList {
	rate := c.SamplingRatePerMillion
	return append(address(c.Endpoint, false, path.Child("endpoint")),
		checkValue(rate >= 0 && rate <= 1_000_000, path.Child("samplingRatePerMillion"), rate, "must be from 0 to 1000000")...)
}

func (c *WebhookConfiguration) validate(path *field.Path) field.ErrorList {
	// A smaller limit would refuse a review of the maximum size.
	const largest = 16 << 20
	errs := slices.Concat(
		address(c.BindAddress, false, path.Child("bindAddress")),
		webhookURL(c.URL, path.Child("url")),
		positive(c.Budget.Duration, path.Child("budget")),
		notNegative(c.DrainPeriod.Duration, path.Child("drainPeriod")),
		atLeast(c.MaxInFlightBytes, largest, path.Child("maxInFlightBytes")),
		oneOf(c.Registration, path.Child("registration"), RegistrationManaged, RegistrationManual),
		oneOf(c.FailurePolicy, path.Child("failurePolicy"), FailurePolicyFail, FailurePolicyIgnore))
	for i, namespace := range c.ExcludedNamespaces {
		errs = append(errs, name(namespace, path.Child("excludedNamespaces").Index(i))...)
	}
	return append(errs, c.Authentication.validate(path.Child("authentication"))...)
}

func (c *AuthenticationConfiguration) validate(path *field.Path) field.ErrorList {
	issuer := c.Tokens.Issuer
	return slices.Concat(
		oneOf(c.Mode, path.Child("mode"), AuthenticationOff, AuthenticationOptional, AuthenticationRequired),
		checkValue(c.Mode != AuthenticationRequired || c.ClientCA.File != "" || c.Tokens.expected(), path.Child("mode"), c.Mode, "needs clientCA.file, "+
			"or tokens.enabled with tokens.audience or tokens.issuer: no API server shows tokens by itself yet, and would be locked out"),
		c.ClientCA.validate(path.Child("clientCA")),
		checkValue(issuer == strings.TrimSpace(issuer), path.Child("tokens", "issuer"), issuer, "must have no spaces around it"),
		webhookURL(c.Tokens.Audience, path.Child("tokens", "audience")))
}

// expected reports whether the API server is configured to send tokens. Enabled, the
// default, does not suffice: API servers of Kubernetes 1.37 issue tokens but send none.
func (c *WebhookTokensConfiguration) expected() bool {
	return c.Enabled && (c.Audience != "" || c.Issuer != "")
}

// validate requires a name beside the CA: most CAs of a cluster also sign for others,
// every kubelet for example.
func (c *ClientCAConfiguration) validate(path *field.Path) field.ErrorList {
	named := len(c.CommonNames)+len(c.Organizations) > 0
	return slices.Concat(
		subjects(c.CommonNames, path.Child("commonNames")),
		subjects(c.Organizations, path.Child("organizations")),
		check(c.File == "" || named, field.Required(path.Child("commonNames"), "clientCA.file needs commonNames or organizations to accept")),
		check(c.File != "" || !named, field.Required(path.Child("file"), "commonNames and organizations need the authorities that certify them")))
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
	return slices.Concat(
		oneOf(c.Mode, path.Child("mode"), EvictionReplace, EvictionWindow, EvictionObserve),
		atLeast(int64(c.Workers), 1, path.Child("workers")),
		notNegative(c.MaxHold.Duration, path.Child("maxHold")))
}

func (c *CertificatesConfiguration) validate(path *field.Path) field.ErrorList {
	switch c.Mode {
	case CertificatesSecret:
		return slices.Concat(name(c.SecretName, path.Child("secretName")), name(c.ServiceName, path.Child("serviceName")), c.validateDurations(path))
	case CertificatesFiles:
		return check(c.Directory != "", field.Required(path.Child("directory"), "mode Files reads tls.crt and tls.key from it"))
	default:
		return oneOf(c.Mode, path.Child("mode"), CertificatesSecret, CertificatesFiles)
	}
}

// validateDurations checks the requirements of package certs: Tollgate must be able to
// renew a serving certificate in time, and the CA must outlive its certificates and the
// delay of a roll-over.
func (c *CertificatesConfiguration) validateDurations(path *field.Path) field.ErrorList {
	const shortest, shortestCA = 10 * time.Second, time.Hour
	serving, ca := c.ServingDuration.Duration, c.CADuration.Duration
	return append(
		checkValue(serving >= shortest, path.Child("servingDuration"), serving.String(), "must be at least "+shortest.String()),
		checkValue(ca >= max(shortestCA, 3*serving), path.Child("caDuration"), ca.String(), "must be at least three times servingDuration, and an hour")...)
}

func (c *AdmissionConfiguration) validate(path *field.Path) field.ErrorList {
	return slices.Concat(
		notNegative(c.MaxTimeAddedSkew.Duration, path.Child("maxTimeAddedSkew")),
		atLeast(c.DefaultNotReadyTolerationSeconds, 0, path.Child("defaultNotReadyTolerationSeconds")),
		atLeast(c.DefaultUnreachableTolerationSeconds, 0, path.Child("defaultUnreachableTolerationSeconds")),
		users(c.Schedulers, path.Child("schedulers")),
		users(c.WorkloadControllers, path.Child("workloadControllers")))
}

// users validates names of users. The names are compared whole, so a pattern would match
// none.
func users(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, name := range names {
		switch {
		case name == "" || name != strings.TrimSpace(name):
			errs = append(errs, field.Invalid(path.Index(i), name, "must be the name of a user, without spaces around it"))
		case strings.Contains(name, "*"):
			errs = append(errs, field.Invalid(path.Index(i), name, "must be the whole name of a user; there are no patterns"))
		case seen[name]:
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		seen[name] = true
	}
	return errs
}

// validate checks the requirements of client-go's leader election.
func (c *LeaderElectionConfiguration) validate(path *field.Path) field.ErrorList {
	lease, renew, retry := c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration
	const jitter = 1.2
	return slices.Concat(
		positive(retry, path.Child("retryPeriod")),
		// After a failed renewal, an eviction request may still run for the difference; with
		// less than a second none could finish.
		checkValue(lease-renew >= time.Second, path.Child("leaseDuration"), lease.String(), "must be longer than renewDeadline by at least a second"),
		checkValue(float64(renew) > jitter*float64(retry), path.Child("renewDeadline"), renew.String(), "must be longer than 1.2 times retryPeriod"))
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
	n, err := strconv.Atoi(port)
	return checkValue(err == nil && n >= 1 && n <= 65535, path, value, "the port must be a number from 1 to 65535")
}

func webhookURL(value string, path *field.Path) field.ErrorList {
	u, err := url.Parse(value)
	return checkValue(value == "" || err == nil && u.Scheme == "https" && isHost(u.Hostname()) && u.User == nil && u.RawQuery == "" && u.Fragment == "" && u.Path == "",
		path, value, "must be https://host:port and nothing more")
}

// isHost reports whether a certificate can be valid for a host.
func isHost(host string) bool {
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

func positive(value time.Duration, path *field.Path) field.ErrorList {
	return checkValue(value > 0, path, value.String(), "must be longer than 0")
}

func notNegative(value time.Duration, path *field.Path) field.ErrorList {
	return checkValue(value >= 0, path, value.String(), "must not be negative")
}

func atLeast(value, least int64, path *field.Path) field.ErrorList {
	return checkValue(value >= least, path, value, "must be at least "+strconv.FormatInt(least, 10))
}
