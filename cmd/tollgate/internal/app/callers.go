package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// The keys that verify callers' tokens have a rate limit of their own, per second: reviews wait
// for them.
const keysQPS = 10

// addCallerAuth adds webhook caller authentication; nil when it is off.
func (p *program) addCallerAuth() (*auth.Callers, error) {
	config := &p.config.Webhook.Authentication
	if config.Mode == configv1alpha1.AuthenticationOff {
		return nil, nil //nolint:nilnil // Nil accepts all callers.
	}
	options := auth.CallerOptions{
		Required:    config.Mode == configv1alpha1.AuthenticationRequired,
		Clock:       p.local,
		ServerClock: p.clock,
		Metrics:     auth.NewCallerMetrics(ctrlmetrics.Registry),
	}
	if ca := config.ClientCA; ca.File != "" {
		options.Certificates = &auth.Certificates{CAFile: ca.File, CommonNames: ca.CommonNames, Organizations: ca.Organizations}
	}
	if config.Tokens.Enabled {
		clientset, err := p.clientWithin(keysQPS, keysQPS)
		if err != nil {
			return nil, fmt.Errorf("make a client for the keys of callers: %w", err)
		}
		options.Tokens = &auth.Tokens{
			Issuer:    config.Tokens.Issuer,
			Published: auth.FromAPIServer(getFrom(clientset.Discovery().RESTClient())),
			Endpoints: tokenEndpoints(p.config),
		}
	}
	callers, err := auth.NewCallers(options)
	if err != nil {
		return nil, fmt.Errorf("webhook.authentication: %w", err)
	}
	if err := p.manager.Add(callers); err != nil {
		return nil, fmt.Errorf("follow who may send reviews: %w", err)
	}
	return callers, nil
}

// getFrom returns a function that reads a path of the API server, which serves keys only as
// application/jwk-set+json.
func getFrom(client rest.Interface) auth.Get {
	return func(ctx context.Context, path string) ([]byte, error) {
		return client.Get().AbsPath(path).SetHeader("Accept", "application/jwk-set+json, application/json").DoRaw(ctx)
	}
}

// tokenEndpoints returns the endpoints by the audience that an API server puts into a token: the
// URL that it calls. It writes the port of a Service too (validateWebhookAudience in
// pkg/registry/core/serviceaccount/storage/token.go).
func tokenEndpoints(config *configv1alpha1.TollgateConfiguration) map[string]auth.Endpoint {
	base := config.Webhook.Authentication.Tokens.Audience
	if base == "" {
		base = config.Webhook.URL
	}
	if base == "" {
		base = fmt.Sprintf("https://%s.%s.svc:443", config.Certificates.ServiceName, config.Namespace)
	}
	return map[string]auth.Endpoint{
		webhook.EndpointMutate:   {Audience: base + webhook.PathMutate, Kind: auth.Mutating, Name: objectName},
		webhook.EndpointValidate: {Audience: base + webhook.PathValidate, Kind: auth.Validating, Name: objectName},
	}
}
