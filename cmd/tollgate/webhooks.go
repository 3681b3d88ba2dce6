package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook"
)

// addAdmission adds the certificates, the policies, and the server that judges by
// them and by what is known of devices, if anything. It returns its readiness
// checks.
func (p *program) addAdmission(ctx context.Context, devices *tracker.Tracker) (map[string]healthz.Checker, error) {
	certificates, err := certs.New(p.certificateOptions())
	if err != nil {
		return nil, fmt.Errorf("keep certificates: %w", err)
	}
	if err := p.manager.Add(certificates); err != nil {
		return nil, fmt.Errorf("keep certificates: %w", err)
	}
	store, err := p.addPolicies(ctx)
	if err != nil {
		return nil, err
	}
	server, err := p.newWebhookServer(certificates)
	if err != nil {
		return nil, err
	}
	config := p.webhookConfig()
	if devices != nil {
		config.DeviceTaints = devices
	}
	ready := map[string]healthz.Checker{"certificates": certificates.Ready, "webhook": server.StartedChecker()}
	if store != nil {
		config.Policies = store
		ready["policies"] = store.Ready
	}
	server.Register(webhook.PathMutate, webhook.Mutate(config))
	server.Register(webhook.PathValidate, webhook.Validate(config))
	if err := p.manager.Add(server); err != nil {
		return nil, fmt.Errorf("serve webhooks: %w", err)
	}
	return ready, nil
}

func (p *program) certificateOptions() certs.Options {
	config := p.config.Certificates
	options := certs.Options{
		Client:  p.clientset,
		Clock:   p.clock,
		Metrics: certs.NewMetrics(ctrlmetrics.Registry),
	}
	if config.Mode == configv1alpha1.CertificatesFiles {
		options.Directory = config.Directory
		return options
	}
	options.Namespace = p.config.Namespace
	options.SecretName = config.SecretName
	options.Hosts = certs.ServiceHosts(p.config.Namespace, config.ServiceName)
	options.URL = p.config.Webhook.URL
	options.ValidatingWebhooks = []string{objectName}
	options.MutatingWebhooks = []string{objectName}
	options.CALifetime = config.CADuration.Duration
	options.ServingLifetime = config.ServingDuration.Duration
	return options
}

func (p *program) newWebhookServer(certificates *certs.Manager) (ctrlwebhook.Server, error) {
	host, portText, err := net.SplitHostPort(p.config.Webhook.BindAddress)
	if err != nil {
		return nil, fmt.Errorf("webhook.bindAddress: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("webhook.bindAddress: %w", err)
	}
	return ctrlwebhook.NewServer(ctrlwebhook.Options{
		Host:    host,
		Port:    port,
		TLSOpts: []func(*tls.Config){certificates.TLSConfig},
	}), nil
}

func (p *program) webhookConfig() webhook.Config {
	admission := p.config.Admission
	return webhook.Config{
		Options: webhook.Options{
			Clock:   p.local,
			Metrics: webhook.NewMetrics(ctrlmetrics.Registry),
			Budget:  p.config.Webhook.Budget.Duration,
			Bodies:  webhook.NewBodies(p.config.Webhook.MaxInFlightBytes),
		},
		ServerClock:                p.clock,
		Policies:                   noPolicies{},
		Namespaces:                 webhook.NewNamespaces(p.manager.GetClient(), p.manager.GetAPIReader(), p.local),
		RuntimeClasses:             webhook.NewRuntimeClasses(p.manager.GetClient(), p.manager.GetAPIReader(), p.local),
		ExtendedResourceToleration: admission.ExtendedResourceToleration,
		PodTolerationRestriction:   admission.PodTolerationRestriction,
		DefaultSeconds: tolerations.DefaultSeconds{
			NotReady:    admission.DefaultNotReadyTolerationSeconds,
			Unreachable: admission.DefaultUnreachableTolerationSeconds,
		},
		MaxTimeAddedSkew: admission.MaxTimeAddedSkew.Duration,
		StampNodeTaints:  p.features.Enabled(features.NodeTaintTimestamps),
		JudgeDirectives:  p.features.Enabled(features.SchedulingDirectives),
		JudgeDevices:     p.features.Enabled(features.DeviceTaintAdmission),
	}
}
