package certs

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	defaultCALifetime      = 365 * 24 * time.Hour
	defaultServingLifetime = 30 * 24 * time.Hour
	defaultBundleDelay     = 10 * time.Minute
	defaultSecretRecheck   = time.Minute
	defaultFilesRecheck    = 10 * time.Second

	// X.509 times have whole seconds, so thirds of a shorter lifetime mean little.
	minServingLifetime = 10 * time.Second
	// A CA is replaced with a third of its lifetime left. That must suffice for a whole
	// serving certificate, or the last ones would be shorter.
	minServingLivesOfCA = 3
	// The roll-over has that same third, half of which must remain for outages after the
	// delay.
	minDelaysOfCA = 6
)

// Options configures the source and the hosts of certificates.
type Options struct {
	OwnCA

	// Client reads and writes the Secret and the webhook configurations; with Directory it
	// only reads the configurations, if any are named.
	Client kubernetes.Interface
	// Clock decides whether certificates are valid.
	Clock clock.WithTicker
	// Metrics counts renewals and errors.
	Metrics *Metrics

	// Directory holds tls.crt and tls.key, which another program renews. If it is set, OwnCA
	// is not used.
	Directory string

	// ValidatingWebhooks and MutatingWebhooks name the configurations into whose webhooks
	// the bundle is written. With Directory another program writes it, and a certificate
	// waits until the bundle verifies it.
	ValidatingWebhooks []string
	MutatingWebhooks   []string

	// Annotate says that another writer owns the webhooks of the configurations: the bundle
	// is written into AnnotationBundle of a configuration instead, for that writer. It is not
	// used with Directory.
	Annotate bool

	// Recheck is the maximum delay between refreshes, also after errors. By default a
	// minute, or 10 seconds for files.
	Recheck time.Duration
}

// OwnCA configures Tollgate's own CA.
type OwnCA struct {
	// Namespace and SecretName name the Secret that the replicas share.
	Namespace  string
	SecretName string
	// Hosts are the DNS names and IP addresses by which the API server calls Tollgate. The
	// host of URL is added.
	Hosts []string
	// URL, if set, is the address of Tollgate outside of the cluster. It replaces the
	// Service in the webhook configurations, with the path of the Service appended.
	URL string

	// CALifetime is the lifetime of a CA, by default a year. A CA is replaced after two
	// thirds of it.
	CALifetime time.Duration
	// ServingLifetime is the lifetime of a serving certificate, by default 30 days, at
	// most a third of CALifetime. The certificate is replaced after two thirds of it.
	ServingLifetime time.Duration
	// BundleDelay is how long a new CA must be in all configurations before it signs, so
	// that each API server has seen it. By default 10 minutes, at most a sixth of
	// CALifetime.
	BundleDelay time.Duration
}

// ServiceHosts returns the DNS names of a Service. API servers verify the one that ends in
// .svc; the other is for people and probes.
func ServiceHosts(namespace, name string) []string {
	return []string{name + "." + namespace + ".svc", name + "." + namespace}
}

func (o *Options) setDefaults() {
	if o.CALifetime == 0 {
		o.CALifetime = defaultCALifetime
	}
	if o.ServingLifetime == 0 {
		o.ServingLifetime = min(defaultServingLifetime, o.CALifetime/minServingLivesOfCA)
	}
	if o.BundleDelay == 0 {
		o.BundleDelay = min(defaultBundleDelay, o.CALifetime/(2*minDelaysOfCA))
	}
	switch {
	case o.Recheck != 0:
	case o.Directory != "":
		o.Recheck = defaultFilesRecheck
	default:
		o.Recheck = defaultSecretRecheck
	}
}

// validate checks the options, and returns URL parsed, nil if it is not set.
func (o *Options) validate() (*url.URL, error) {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Clock == nil, "clock is missing")
	refuse(o.Metrics == nil, "metrics are missing")
	refuse(o.Recheck < 0, "recheck %s is negative", o.Recheck)
	named := len(o.ValidatingWebhooks)+len(o.MutatingWebhooks) != 0
	refuse(o.Client == nil && (o.Directory == "" || named), "client is missing")
	if o.Directory != "" {
		return nil, errors.Join(errs...)
	}
	refuse(o.Namespace == "", "namespace of the secret is missing")
	refuse(o.SecretName == "", "name of the secret is missing")
	refuse(len(o.Hosts) == 0 && o.URL == "", "hosts are missing")
	for _, h := range o.Hosts {
		refuse(!isHost(h), "host %q is neither a DNS name nor an IP address", h)
	}
	refuse(o.ServingLifetime < minServingLifetime,
		"serving lifetime %s is below %s", o.ServingLifetime, minServingLifetime)
	refuse(o.CALifetime/minServingLivesOfCA < o.ServingLifetime,
		"serving lifetime %s is more than a third of the CA lifetime %s", o.ServingLifetime, o.CALifetime)
	refuse(o.BundleDelay < 0, "bundle delay %s is negative", o.BundleDelay)
	refuse(o.CALifetime/minDelaysOfCA < o.BundleDelay,
		"bundle delay %s is more than a sixth of the CA lifetime %s", o.BundleDelay, o.CALifetime)
	base, err := o.parseURL()
	return base, errors.Join(append(errs, err)...)
}

// isHost reports whether a certificate can be valid for h. A host with a port, for
// example, would be found missing after each issue.
func isHost(h string) bool {
	if address, err := netip.ParseAddr(h); err == nil {
		return address.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(h)) == 0
}

// parseURL returns nil if no URL is set. The API server accepts neither user, query nor
// fragment in the URL of a webhook, and only https.
func (o *Options) parseURL() (*url.URL, error) {
	if o.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("url cannot be parsed")
	}
	if u.Scheme != "https" || !isHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("url %q is not https://host[:port][/path]", u.Redacted())
	}
	return u, nil
}
