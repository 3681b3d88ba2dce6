package certs

import (
	"cmp"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	defaultBundleDelay   = 10 * time.Minute
	defaultSecretRecheck = time.Minute
	defaultFilesRecheck  = 10 * time.Second

	// A CA is replaced with a third of its lifetime left, a quarter of which is the maximum
	// delay of the roll-over: the rest is for outages.
	minDelaysOfCA = 12
)

// Options configures the source and the hosts of certificates. They are not validated: the
// configuration of the server is.
type Options struct {
	OwnCA

	// Client reads and writes the Secret and the webhook configurations; with Directory it
	// only reads the configurations, if they are named.
	Client kubernetes.Interface
	// Clock decides whether certificates are valid.
	Clock clock.WithTicker
	// Metrics counts renewals and errors.
	Metrics *Metrics

	// Directory holds tls.crt and tls.key, which another program renews. If it is set, OwnCA
	// is not used.
	Directory string

	// Configurations is the name of the validating and of the mutating webhook configuration
	// into whose webhooks the bundle is written. With Directory another program writes it,
	// and a certificate waits until the bundle verifies it; the name may be empty then.
	Configurations string

	// Annotate says that another writer owns the webhooks of the configurations: the bundle
	// is written into AnnotationBundle of a configuration instead, for that writer. It is not
	// used with Directory.
	Annotate bool

	// recheck is the maximum delay between refreshes, also after errors: a minute, or 10
	// seconds for files.
	recheck time.Duration
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

	// CALifetime is the lifetime of a CA. A CA is replaced after two thirds of it.
	CALifetime time.Duration
	// ServingLifetime is the lifetime of a serving certificate, at most a third of CALifetime:
	// the last third of a CA must suffice for a whole serving certificate. The certificate is
	// replaced after two thirds of it.
	ServingLifetime time.Duration
	// bundleDelay is how long a new CA must be in all configurations before it signs, so
	// that each API server has seen it: 10 minutes, at most a twelfth of CALifetime.
	bundleDelay time.Duration
}

// ServiceHosts returns the DNS names of a Service. API servers verify the one that ends in
// .svc; the other is for people and probes.
func ServiceHosts(namespace, name string) []string {
	return []string{name + "." + namespace + ".svc", name + "." + namespace}
}

func (o *Options) setDefaults() {
	recheck := defaultSecretRecheck
	if o.Directory != "" {
		recheck = defaultFilesRecheck
	}
	o.recheck = cmp.Or(o.recheck, recheck)
	o.bundleDelay = cmp.Or(o.bundleDelay, min(defaultBundleDelay, o.CALifetime/minDelaysOfCA))
}
