package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/leader"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/serverclock"
)

// objectName names the Lease and both webhook configurations in deploy.
const objectName = "tollgate"

// program is what the parts of tollgate serve share.
type program struct {
	config   *configv1alpha1.TollgateConfiguration
	features featuregate.FeatureGate
	// clock is the API server's; local is this machine's.
	clock, local clock.WithTicker
	// connection learns the API server's time and obeys the client limits.
	connection *rest.Config
	clientset  kubernetes.Interface
	manager    ctrl.Manager
	// stopEvents ends the writing of events, after everyone who might write some.
	stopEvents func()
	// lock is nil where one replica is all there is.
	lock *leader.Lock
}

// serve runs until ctx is done.
func serve(ctx context.Context, config *configv1alpha1.TollgateConfiguration, connection *rest.Config) error {
	p, err := newProgram(ctx, config, connection)
	if err != nil {
		return err
	}
	devices, err := p.addEvictor(ctx)
	if err != nil {
		return err
	}
	ready, err := p.addAdmission(ctx, devices)
	if err != nil {
		return err
	}
	if err := p.addProbes(ready); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("starting", "version", version(), "webhook", config.Webhook.BindAddress,
		"metrics", config.Metrics.BindAddress, "health", config.Health.BindAddress)
	err = p.manager.Start(ctx)
	p.stopEvents()
	return err
}

// waitForAPIServer returns when the API server answers. Tollgate starts beside a
// control plane that may be starting too.
func (p *program) waitForAPIServer(ctx context.Context) error {
	const pause = 2 * time.Second
	for {
		_, err := p.clientset.Discovery().ServerVersion()
		if err == nil {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Info("waiting for the API server", "host", p.connection.Host, "reason", err.Error())
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w", err)
		case <-p.local.After(pause):
		}
	}
}

func newProgram(ctx context.Context, config *configv1alpha1.TollgateConfiguration, connection *rest.Config) (*program, error) {
	gates, err := features.New(config.FeatureGates)
	if err != nil {
		return nil, err
	}
	local := clock.RealClock{}
	now := serverclock.New(local)
	connection = rest.CopyConfig(connection)
	connection.UserAgent = "tollgate/" + version()
	connection.QPS, connection.Burst = config.ClientConnection.QPS, config.ClientConnection.Burst
	connection.Wrap(now.Wrap)
	clientset, err := kubernetes.NewForConfig(protobuf(connection))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	p := &program{config: config, features: gates, clock: now, local: local, connection: connection, clientset: clientset, stopEvents: func() {}}
	if p.lock, err = p.newLock(); err != nil {
		return nil, err
	}
	if err := p.waitForAPIServer(ctx); err != nil {
		return nil, err
	}
	options, err := p.managerOptions(ctx)
	if err != nil {
		return nil, err
	}
	if p.manager, err = ctrl.NewManager(connection, options); err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return p, nil
}

func (p *program) managerOptions(ctx context.Context) (ctrl.Options, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return ctrl.Options{}, fmt.Errorf("register kinds: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return ctrl.Options{}, fmt.Errorf("register kinds: %w", err)
	}
	options := ctrl.Options{
		Scheme:                 scheme,
		Logger:                 logr.FromContextOrDiscard(ctx),
		BaseContext:            func() context.Context { return ctx },
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                metricsserver.Options{BindAddress: p.config.Metrics.BindAddress},
		HealthProbeBindAddress: p.config.Health.BindAddress,
		// Package leader elects, see there.
		LeaderElection:          false,
		GracefulShutdownTimeout: new(30 * time.Second),
	}
	return options, nil
}

// protobuf returns a connection for the kinds that are built into Kubernetes,
// which the API server also speaks about in protobuf, as its own controllers do.
func protobuf(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.ContentType = runtime.ContentTypeProtobuf
	connection.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return connection
}
