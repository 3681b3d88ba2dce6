package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/leader"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/serverclock"
	"github.com/tollgate-dev/tollgate/evictor/panics"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// objectName names the Lease and both webhook configurations in deploy.
const objectName = settings.LeaseName

// program holds the dependencies that the parts of tollgate serve share.
type program struct {
	config     *configv1alpha1.TollgateConfiguration
	components components
	features   featuregate.FeatureGate
	// clock follows the API server's time; local is the clock of this machine.
	clock, local clock.WithTicker
	// connection updates clock from responses and has the client rate limits.
	connection *rest.Config
	clientset  kubernetes.Interface
	// dynamic reads and writes DeviceTaintRules, which have several served versions, and
	// ResourceSlicePatches.
	dynamic dynamic.Interface
	manager ctrl.Manager
	// authorizer answers permission checks of policies for pods, workloads and claims; operators
	// those for taints and namespace labels. They do not share a rate limit.
	authorizer, operators *auth.Authority
	// certificates serve the webhooks, or only the metrics in a process without webhooks; nil
	// until addAdmission, and where nothing is served by HTTPS.
	certificates *certs.Manager
	// self is the user name of this process.
	self string
	// stopEvents shuts the event broadcaster down; call it after all recorders have stopped.
	stopEvents func()
	// lock is nil without leader election.
	lock      *leader.Lock
	recorders recorders
	// leading are the functions that only the leader runs.
	leaderTasks []func(context.Context) error
}

// serve runs until ctx is done, then answers reviews for the shutdown period.
func serve(ctx context.Context, config *configv1alpha1.TollgateConfiguration, run components, connection *rest.Config) error {
	p, err := newProgram(ctx, config, run, connection)
	if err != nil {
		return err
	}
	store, err := p.addPolicies(ctx)
	if err != nil {
		return err
	}
	state, err := p.addEvictor(ctx, store)
	if err != nil {
		return err
	}
	patches, err := p.addPatchFeed()
	if err != nil {
		return err
	}
	previews, err := p.addPreviews(state, patches)
	if err != nil {
		return err
	}
	p.addControllers(store, state, previews)
	if err := p.addPatches(state, patches); err != nil {
		return err
	}
	if err := p.addLeader(ctx); err != nil {
		return err
	}
	panics.Register(ctrlmetrics.Registry)
	Register(ctrlmetrics.Registry, settings.Version(), string(config.Eviction.Mode), p.leads)
	serveCtx, end := Extend(ctx, p.config.Webhook.DrainPeriod.Duration, p.local)
	defer end()
	ready, err := p.addAdmission(ctx, serveCtx, store, state, previews.preview)
	if err != nil {
		return err
	}
	ready["shutdown"] = Ready(ctx)
	if err := p.addProbes(ready); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("starting", "version", settings.Version(), "components", run.String(), "webhook", config.Webhook.BindAddress,
		"metrics", config.Metrics.BindAddress, "health", config.Health.BindAddress)
	err = p.manager.Start(serveCtx)
	p.stopEvents()
	return err
}

// waitForAPIServer polls every 2 s until the API server answers or ctx is done: both may be
// starting at the same time.
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

// currentUser returns the user name under which the API server authenticates this process.
func (p *program) currentUser(ctx context.Context) (string, error) {
	review, err := p.clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask who this is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func newProgram(ctx context.Context, config *configv1alpha1.TollgateConfiguration, run components, connection *rest.Config) (*program, error) {
	gates, err := settings.NewFeatureGates(config.FeatureGates)
	if err != nil {
		return nil, err
	}
	local := clock.RealClock{}
	now := serverclock.New(local)
	connection = rest.CopyConfig(connection)
	connection.UserAgent = "tollgate/" + settings.Version()
	connection.QPS, connection.Burst = config.ClientConnection.QPS, config.ClientConnection.Burst
	connection.Wrap(now.Wrap)
	clientset, err := kubernetes.NewForConfig(protobuf(connection))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	p := &program{config: config, components: run, features: gates, clock: now, local: local, connection: connection, clientset: clientset, stopEvents: func() {}}
	if p.dynamic, err = dynamic.NewForConfig(connection); err != nil {
		return nil, fmt.Errorf("make a client for DeviceTaintRules: %w", err)
	}
	if p.authorizer, err = p.newAuthority(); err != nil {
		return nil, err
	}
	if p.operators, err = p.newAuthority(); err != nil {
		return nil, err
	}
	if p.lock, err = p.newLock(); err != nil {
		return nil, err
	}
	if err := p.waitForAPIServer(ctx); err != nil {
		return nil, err
	}
	if p.self, err = p.currentUser(ctx); err != nil {
		return nil, err
	}
	if p.recorders, err = p.newRecorders(ctx); err != nil {
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
	metrics, err := p.metricsOptions()
	if err != nil {
		return ctrl.Options{}, err
	}
	options := ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromContextOrDiscard(ctx),
		// Runnables end with the manager, not when ctx ends.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: trimNode}},
		},
		Metrics:                metrics,
		HealthProbeBindAddress: p.config.Health.BindAddress,
		// Package leader runs the election.
		LeaderElection:          false,
		GracefulShutdownTimeout: new(30 * time.Second),
	}
	return options, nil
}

// trimNode is a cache transform that keeps the metadata, taints, twin annotation and Ready
// condition of a node. The rest of the status is by far the larger part.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: node.ObjectMeta, Spec: corev1.NodeSpec{Taints: node.Spec.Taints}}
	kept.ManagedFields, kept.Annotations = nil, nil
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			// The heartbeat time is left out.
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	if twins, ok := node.Annotations[v1alpha1.AnnotationTwins]; ok {
		kept.Annotations = map[string]string{v1alpha1.AnnotationTwins: twins}
	}
	return kept, nil
}

// protobuf returns a copy of connection that prefers protobuf, which works for built-in kinds
// only.
func protobuf(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.ContentType = runtime.ContentTypeProtobuf
	connection.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return connection
}
