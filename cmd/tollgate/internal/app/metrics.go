package app

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Scrapes have a client, a rate limit and a cache of their own: any client that reaches the port
// can cause requests, and neither reviews nor evictions may wait for these.
const (
	scrapeQPS   = 10
	scrapeBurst = 20
)

// metricsOptions returns the address of the metrics server and its authorization (F12).
func (p *program) metricsOptions() (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: p.config.Metrics.BindAddress}
	if !p.config.Metrics.Asked() {
		return options, nil
	}
	guard, err := p.newScrapeGuard()
	if err != nil {
		return options, err
	}
	options.SecureServing = true
	// The server listens once the manager runs; by then there are certificates.
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { p.certificates.TLSConfig(c) }}
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
			return guard.Around(log, handler), nil
		}, nil
	}
	return options, nil
}

func (p *program) newScrapeGuard() (*Guard, error) {
	clientset, err := p.clientWithin(scrapeQPS, scrapeBurst)
	if err != nil {
		return nil, fmt.Errorf("make a client for those who scrape: %w", err)
	}
	allows := auth.NewAuthority(clientset.AuthorizationV1().SubjectAccessReviews(), p.local, auth.AuthorityLimits{})
	return NewGuard(clientset.AuthenticationV1().TokenReviews(), allows, p.local), nil
}
