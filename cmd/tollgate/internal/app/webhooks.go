package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// addAdmission adds the certificates and the webhook server, which closes connections once shutdownCtx
// is done, and returns its readiness checks. A process without the webhook is ready when the policies
// are read.
func (p *program) addAdmission(shutdownCtx context.Context, state *evictionState, preview *handlers.Preview) (map[string]healthz.Checker, error) {
	if p.certificates != nil {
		p.add(p.certificates)
	}
	if !p.components.webhook {
		return map[string]healthz.Checker{"policies": p.store.Ready}, nil
	}
	callers, err := p.newCallers()
	if err != nil {
		return nil, err
	}
	if callers != nil {
		p.add(callers)
	}
	config := p.webhookConfig(state, preview, callers)
	if outages := config.Handlers.Outages; outages != nil {
		p.add(everyReplica(func(ctx context.Context) {
			controller.Watch(ctx, p.manager.GetCache(), &corev1.Node{}, outages, p.local)
		}))
	}
	server := webhook.NewServer(webhook.ServerOptions{
		BindAddress: p.config.Webhook.BindAddress, TLS: []func(*tls.Config){p.certificates.TLSConfig, callers.TLSConfig},
		Budget: config.Budget, Metrics: config.Metrics,
	})
	server.Register(webhook.PathMutate, CloseConnections(shutdownCtx, webhook.Mutate(config)))
	server.Register(webhook.PathValidate, CloseConnections(shutdownCtx, webhook.Validate(config)))
	p.add(server)
	return map[string]healthz.Checker{
		"certificates": p.certificates.Ready, "webhook": server.StartedChecker(), "policies": p.store.Ready,
	}, nil
}

// waitingTurns is how many reviews may wait for each costly evaluation that runs. The expressions of a
// review take 0.1 s at most, so the last of them waits no longer than 0.4 s.
const waitingTurns = 4

// turns returns turns for as many costly evaluations as there are processors.
func turns() *cel.Turns {
	running := runtime.GOMAXPROCS(0)
	return cel.NewTurns(running, waitingTurns*running)
}

// newCertificates returns the certificates of the webhooks and the metrics, or of the metrics only;
// nil if neither is served by HTTPS.
func (p *program) newCertificates() (*certs.Manager, error) {
	config, options := p.config, certs.Options{Clock: p.clock}
	switch own := config.Certificates; {
	case !p.components.webhook && !config.Metrics.Asked():
		return nil, nil //nolint:nilnil // Nil means that nothing is served by HTTPS.
	case !p.components.webhook:
		options.Directory = config.Metrics.CertificateDirectory
	default:
		options.Client = p.clientset
		options.Configurations = objectName
		options.Annotate = config.Webhook.Registration == configv1alpha1.RegistrationManaged
		if own.Mode == configv1alpha1.CertificatesFiles {
			options.Directory = own.Directory
			break
		}
		options.OwnCA = certs.OwnCA{
			Namespace: config.Namespace, SecretName: own.SecretName, Hosts: certs.ServiceHosts(config.Namespace, own.ServiceName),
			URL: config.Webhook.URL, CALifetime: own.CADuration.Duration, ServingLifetime: own.ServingDuration.Duration,
		}
	}
	options.Metrics = certs.NewMetrics(ctrlmetrics.Registry)
	certificates, err := certs.New(options)
	if err != nil {
		return nil, fmt.Errorf("keep certificates: %w", err)
	}
	return certificates, nil
}

func (p *program) webhookConfig(state *evictionState, preview *handlers.Preview, callers *auth.Callers) webhook.Config {
	cached, live := p.manager.GetClient(), p.manager.GetAPIReader()
	config := settings.HandlersOf(p.config, p.features)
	config.Clock, config.ServerClock, config.Preview = p.local, p.clock, preview
	config.Readers = handlers.Readers{
		Policies:       p.store,
		Namespaces:     handlers.NewNamespaces(cached, live, p.local),
		Live:           live,
		Cache:          cached,
		DeviceClasses:  handlers.NewDeviceClasses(cached, live, p.local),
		RuntimeClasses: handlers.NewRuntimeClasses(cached, live, p.local),
	}
	config.Authorizers = handlers.Authorizers{
		Authorizer: p.authorizer, Turns: turns(), Operators: p.operators, OperatorTurns: turns(),
	}
	config.Selves = p.components.selves(p.self)
	config.WithoutDeviceTaintRules, config.IgnoreComparisonOperators = !p.features.Enabled(settings.DeviceTaintRules), p.ignoresComparisons()
	if config.NodeTaintTimestamps {
		config.Outages = handlers.NewOutages()
	}
	if state.devices != nil {
		config.DeviceTaints = state.tracker
	}
	if state.nodes {
		config.Spread = &handlers.Spread{
			Nodes: state.tracker, Known: state.pods, ComparisonOperators: p.config.Eviction.ComparisonOperators, Clock: p.local,
		}
	}
	return webhook.Config{
		Options: webhook.Options{
			Clock:   p.local,
			Callers: callers,
			Metrics: webhook.NewMetrics(ctrlmetrics.Registry),
			Budget:  p.config.Webhook.Budget.Duration,
			Bodies:  webhook.NewBodies(p.config.Webhook.MaxInFlightBytes),
			Tracer:  p.tracer,
		},
		Handlers: config,
	}
}

// Access reviews have clients and rate limits of their own, one for tenants and one for
// operators: reviews do not wait for the evictor, evictions not for reviews, and operators not
// for tenants.
const (
	reviewQPS   = 50
	reviewBurst = 100
)

func newAuthority(connection *rest.Config, local clock.Clock) (*auth.Authority, error) {
	// The client has no rate limit: the authority has one, fair between namespaces.
	clientset, err := clientWithin(connection, -1, 0)
	if err != nil {
		return nil, fmt.Errorf("make a client for access reviews: %w", err)
	}
	limits := auth.AuthorityLimits{PerSecond: reviewQPS, Burst: reviewBurst}
	return auth.NewAuthority(clientset.AuthorizationV1().SubjectAccessReviews(), local, limits), nil
}

// clientWithin returns a client with its own rate limit.
func clientWithin(connection *rest.Config, qps float32, burst int) (*kubernetes.Clientset, error) {
	connection = protobuf(connection)
	connection.QPS, connection.Burst = qps, burst
	return kubernetes.NewForConfig(connection)
}

// The keys that verify callers' tokens have a rate limit of their own, per second: reviews wait
// for them.
const keysQPS = 10

// newCallers returns the authentication of the callers of webhooks; nil when it is off.
func (p *program) newCallers() (*auth.Callers, error) {
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
		clientset, err := clientWithin(p.connection, keysQPS, keysQPS)
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
	base := cmp.Or(config.Webhook.Authentication.Tokens.Audience, config.Webhook.URL,
		fmt.Sprintf("https://%s.%s.svc:443", config.Certificates.ServiceName, config.Namespace))
	return map[string]auth.Endpoint{
		webhook.EndpointMutate:   {Audience: base + webhook.PathMutate, Kind: auth.Mutating, Name: objectName},
		webhook.EndpointValidate: {Audience: base + webhook.PathValidate, Kind: auth.Validating, Name: objectName},
	}
}
