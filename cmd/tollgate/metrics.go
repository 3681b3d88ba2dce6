package main

import (
	"crypto/tls"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/scrape"
)

// metricsOptions says where metrics are served, and to whom (F12).
func (p *program) metricsOptions() metricsserver.Options {
	options := metricsserver.Options{BindAddress: p.config.Metrics.BindAddress}
	if !p.config.Metrics.Asked() {
		return options
	}
	options.SecureServing = true
	// The server listens once the manager runs; by then there are certificates.
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { p.certificates.TLSConfig(c) }}
	guard := scrape.NewGuard(p.clientset.AuthenticationV1().TokenReviews(), p.authorizer, p.local)
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
			return guard.Around(log, handler), nil
		}, nil
	}
	return options
}
