package app

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

// addAdmission adds the certificates and the webhook server, which serves until serveCtx is done,
// and returns its readiness checks. A process without the webhook is ready when the policies are
// read.
func (p *program) addAdmission(
	shutdownCtx, serveCtx context.Context, store *policies.Store, state *evictionState, preview *webhook.Preview,
) (map[string]healthz.Checker, error) {
	if err := p.addCertificates(); err != nil {
		return nil, err
	}
	if !p.components.webhook {
		return map[string]healthz.Checker{"policies": store.Ready}, nil
	}
	callerAuth, err := p.addCallerAuth()
	if err != nil {
		return nil, err
	}
	config := p.webhookConfig(store, state)
	config.Preview, config.Callers = preview, callerAuth
	if outages := config.Outages; outages != nil {
		follow := func(ctx context.Context) {
			controllers.Watch(ctx, p.manager.GetCache(), &corev1.Node{}, outages, p.local)
		}
		if err := p.manager.Add(everyReplica(follow)); err != nil {
			return nil, fmt.Errorf("watch nodes: %w", err)
		}
	}
	server := webhook.NewServer(webhook.ServerOptions{
		BindAddress: p.config.Webhook.BindAddress, TLS: []func(*tls.Config){p.certificates.TLSConfig, callerAuth.TLSConfig},
		Budget: config.Budget, Metrics: config.Metrics,
	})
	ready := map[string]healthz.Checker{
		"certificates": p.certificates.Ready, "webhook": server.StartedChecker(), "policies": store.Ready,
	}
	server.Register(webhook.PathMutate, Finish(shutdownCtx, serveCtx, webhook.Mutate(config)))
	server.Register(webhook.PathValidate, Finish(shutdownCtx, serveCtx, webhook.Validate(config)))
	if err := p.manager.Add(server); err != nil {
		return nil, fmt.Errorf("serve webhooks: %w", err)
	}
	return ready, nil
}

// addCertificates adds the certificate of the webhooks and the metrics, or of the metrics only;
// none if neither is served by HTTPS.
func (p *program) addCertificates() error {
	if !p.components.webhook && !p.config.Metrics.Asked() {
		return nil
	}
	certificates, err := certs.New(p.certificateOptions())
	if err != nil {
		return fmt.Errorf("keep certificates: %w", err)
	}
	if err := p.manager.Add(certificates); err != nil {
		return fmt.Errorf("keep certificates: %w", err)
	}
	p.certificates = certificates
	return nil
}

func (p *program) certificateOptions() certs.Options {
	config := p.config.Certificates
	options := certs.Options{Clock: p.clock, Metrics: certs.NewMetrics(ctrlmetrics.Registry)}
	if !p.components.webhook {
		options.Directory = p.config.Metrics.CertificateDirectory
		return options
	}
	options.Client = p.clientset
	options.ValidatingWebhooks = []string{objectName}
	options.MutatingWebhooks = []string{objectName}
	if config.Mode == configv1alpha1.CertificatesFiles {
		options.Directory = config.Directory
		return options
	}
	options.Namespace = p.config.Namespace
	options.SecretName = config.SecretName
	options.Hosts = certs.ServiceHosts(p.config.Namespace, config.ServiceName)
	options.URL = p.config.Webhook.URL
	options.CALifetime = config.CADuration.Duration
	options.ServingLifetime = config.ServingDuration.Duration
	return options
}

func (p *program) webhookConfig(store *policies.Store, state *evictionState) webhook.Config {
	admission := p.config.Admission
	config := webhook.Config{
		Options: webhook.Options{
			Clock:   p.local,
			Metrics: webhook.NewMetrics(ctrlmetrics.Registry),
			Budget:  p.config.Webhook.Budget.Duration,
			Bodies:  webhook.NewBodies(p.config.Webhook.MaxInFlightBytes),
		},
		ServerClock:                p.clock,
		Policies:                   store,
		Namespaces:                 webhook.NewNamespaces(p.manager.GetClient(), p.manager.GetAPIReader(), p.local),
		Live:                       p.manager.GetAPIReader(),
		Cache:                      p.manager.GetClient(),
		Authorizer:                 p.authorizer,
		Operators:                  p.operators,
		Selves:                     p.components.selves(p.self),
		DeviceClasses:              webhook.NewDeviceClasses(p.manager.GetClient(), p.manager.GetAPIReader(), p.local),
		Schedulers:                 admission.Schedulers,
		WorkloadControllers:        append(webhook.DefaultWorkloadControllers(), admission.WorkloadControllers...),
		RuntimeClasses:             webhook.NewRuntimeClasses(p.manager.GetClient(), p.manager.GetAPIReader(), p.local),
		ExtendedResourceToleration: admission.ExtendedResourceToleration,
		PodTolerationRestriction:   admission.PodTolerationRestriction,
		DefaultSeconds:             p.defaultSeconds(),
		MaxTimeAddedSkew:           admission.MaxTimeAddedSkew.Duration,
		StampNodeTaints:            p.features.Enabled(settings.NodeTaintTimestamps),
		JudgeDirectives:            p.features.Enabled(settings.SchedulingDirectives),
		JudgeDevices:               p.features.Enabled(settings.DeviceTaintAdmission),
		WithoutDeviceTaintRules:    !p.features.Enabled(settings.DeviceTaintRules),
		Window:                     p.window(),
		IgnoreComparisonOperators: !p.config.Eviction.ComparisonOperators &&
			p.config.Eviction.Mode != configv1alpha1.EvictionObserve && p.features.Enabled(settings.NodeTaintEviction),
	}
	if config.StampNodeTaints {
		config.Outages = webhook.NewOutages()
	}
	if state.devices != nil {
		config.DeviceTaints = state.tracker
	}
	if state.nodes {
		config.Spread = webhook.NewSpread(webhook.SpreadConfig{
			Nodes: state.tracker, Known: state.pods, ComparisonOperators: p.config.Eviction.ComparisonOperators, Clock: p.local,
		})
	}
	return config
}

// Access reviews have clients and rate limits of their own, one for tenants and one for
// operators: reviews do not wait for the evictor, evictions not for reviews, and operators not
// for tenants.
const (
	reviewQPS   = 50
	reviewBurst = 100
)

func (p *program) newAuthority() (*auth.Authority, error) {
	// The client has no rate limit: the authority has one, fair between namespaces.
	clientset, err := p.clientWithin(-1, 0)
	if err != nil {
		return nil, fmt.Errorf("make a client for access reviews: %w", err)
	}
	limits := auth.AuthorityLimits{PerSecond: reviewQPS, Burst: reviewBurst}
	return auth.NewAuthority(clientset.AuthorizationV1().SubjectAccessReviews(), p.local, limits), nil
}

// clientWithin returns a client with its own rate limit.
func (p *program) clientWithin(qps float32, burst int) (*kubernetes.Clientset, error) {
	connection := rest.CopyConfig(p.connection)
	connection.QPS, connection.Burst = qps, burst
	return kubernetes.NewForConfig(protobuf(connection))
}

func (p *program) defaultSeconds() toleration.DefaultSeconds {
	return toleration.DefaultSeconds{
		NotReady:    p.config.Admission.DefaultNotReadyTolerationSeconds,
		Unreachable: p.config.Admission.DefaultUnreachableTolerationSeconds,
	}
}
